"""Define the section `squad` of a system file, and the options that features and answers take from it."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from bertbench.common.section import Count, Fraction, Section


@dataclass(frozen=True)
class WindowOptions:
    """How a question and its context become sequences."""

    max_seq_length: int
    """Maximum number of tokens in a sequence: [CLS] question [SEP] window of the context [SEP]."""
    doc_stride: int
    """Tokens from the start of a window to the start of the next."""
    max_query_length: int
    """Maximum number of tokens in a question; further ones are cut off."""
    lower_case: bool


class Squad(Section):
    """What only fine-tuning on SQuAD needs (docs/finetuning.md); the other sections are those of every run."""

    epochs: Count = 2
    """How many times each feature is trained on. 2 to 4 are usual. It decides the number of steps."""
    warmup_fraction: Fraction = 0.0
    """Share of the steps in which the rate rises from 0, if `schedule.warmup_steps` is 0. 0.1 is usual."""
    max_seq_length: Annotated[int, Field(ge=8, le=512)] | None = None
    """Maximum number of tokens in a sequence (default: 384, or model.max_positions if that is less)."""
    doc_stride: Count | None = None
    """Tokens from the start of a window of the context to the start of the next (default: 128, or a third of
    max_seq_length if that is less)."""
    max_query_length: Count | None = None
    """Maximum number of tokens in a question; further ones are cut off (default: 64, or half of max_seq_length if that
    is less)."""
    max_answer_length: Count = 30
    """Maximum number of tokens in an answer. Raise it for questions with long answers."""
    n_best: Count = 20
    """Number of candidate answers to each question that are written to a file."""
    null_score_threshold: float = 0.0
    """A question is left unanswered if the empty answer's score exceeds that of the best other answer by more than
    this."""
    lower_case: bool = True
    """Whether the vocabulary is lower-case. Text is then converted to lower case and stripped of accents."""

    def windows(self, max_positions: int) -> WindowOptions:
        """Return how questions and contexts become sequences for a model with `max_positions` positions."""
        length = self.max_seq_length or min(384, max_positions)
        query = self.max_query_length or min(64, length // 2)
        return WindowOptions(length, self.doc_stride or max(1, min(128, length // 3)), query, self.lower_case)
