"""The section `finetune` of a system file, and the plain values that it hands to features and answers."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat

from bertbench.common.section import Count, Fraction, Section
from bertbench.config.optimizer import ClipMode, OptimizerName


@dataclass(frozen=True)
class WindowOptions:
    """How a question and its context become sequences."""

    max_seq_length: int
    """Tokens of a sequence: [CLS] question [SEP] window of the context [SEP]."""
    doc_stride: int
    """Tokens from the start of a window to the start of the next."""
    max_query_length: int
    """Tokens of a question; the rest is cut off."""
    lower_case: bool


class Finetune(Section):
    """Fine-tuning on SQuAD (docs/finetuning.md); model, precision, ranks and layout are those of the other sections."""

    epochs: Count = 2
    """Times that every feature is trained on. 2 to 4 are usual."""
    global_batch_size: Count = 32
    """Features of one optimizer step over all ranks. A larger one needs a higher learning rate."""
    gradient_accumulation_steps: Count = 1
    """Parts in which a rank works through its features of one step; a pipeline has `parallel.microbatches` instead."""
    optimizer: OptimizerName = "adam"
    """Update rule; adam is the AdamW that BERT was published with, and also corrects the bias. `optimizer` has the
    settings of muon, the kernels (`impl`) and ZeRO-1 (`sharded`)."""
    learning_rate: PositiveFloat = 3e-5
    """Rate at the end of warm-up; it falls to 0 at the last step."""
    warmup_fraction: Fraction = 0.1
    """Share of the steps in which the rate rises from 0, where `warmup_steps` isn't given."""
    warmup_steps: NonNegativeInt | None = None
    """Steps in which the rate rises from 0, in place of `warmup_fraction`."""
    beta1: Fraction = 0.9
    """Share of the mean gradient that each step keeps."""
    beta2: Fraction = 0.999
    """Share of the mean squared gradient that each step keeps."""
    epsilon: PositiveFloat = 1e-6
    """Added to the root of the mean squared gradient."""
    weight_decay: NonNegativeFloat = 0.01
    """Decay of the matrices, as a factor of the learning rate; biases and LayerNorms have none."""
    clip: ClipMode = "after"
    """Gradient clipping, as `clip.mode` in pre-training: none, after, before or bucket."""
    max_norm: PositiveFloat = 1.0
    """Largest norm of a gradient, as `clip.max_norm` in pre-training."""
    max_seq_length: Annotated[int, Field(ge=8, le=512)] | None = None
    """Tokens of a sequence (default: 384, or model.max_positions if that is less)."""
    doc_stride: Count | None = None
    """Tokens from the start of a window of the context to the start of the next; where it isn't given, 128, or a third
    of max_seq_length if that is less."""
    max_query_length: Count | None = None
    """Tokens of a question, the rest is cut off; where it isn't given, 64, or half of max_seq_length if that is
    less."""
    max_answer_length: Count = 30
    """Most tokens of an answer. Raise it for questions with long answers."""
    n_best: Count = 20
    """Answers of a question that are kept in the file of candidates."""
    null_score_threshold: float = 0.0
    """A question is left unanswered if the empty answer's score is above the best other's by more than this."""
    lower_case: bool = True
    """Whether the vocabulary is of lower-case text; accents are then removed, too."""

    def windows(self, max_positions: int) -> WindowOptions:
        """Return how questions and contexts become sequences for a model with `max_positions` positions."""
        length = self.max_seq_length or min(384, max_positions)
        query = self.max_query_length or min(64, length // 2)
        return WindowOptions(length, self.doc_stride or max(1, min(128, length // 3)), query, self.lower_case)

    def warm_up_steps(self, steps: int) -> int:
        """Return the number of steps in which the rate rises, in a run of `steps` steps."""
        if self.warmup_steps is not None:
            return self.warmup_steps
        return int(self.warmup_fraction * steps)
