"""Define the sections of a system file about the machine, the model, its data and what ends a run.

layout.py has those about ranks, and optimizer.py those about the step.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat

from bertbench.balance.plan import Method
from bertbench.common.section import Count, Fraction, Section, Share
from bertbench.model.options import CompileMode, PrecisionName, ProductsName, ResidualName
from bertbench.model.shape import BertShape

if TYPE_CHECKING:
    from bertbench.data.text.sentence_pairs import SampleOptions

Status = Literal["Available on-premise", "Available cloud", "Research, Development, or Internal (RDI)", "Preview"]


class Hardware(Section):
    """The machine, in the 33 fields of an MLPerf system description (mlcommons/policies, submission_rules.adoc).

    Any of them may be empty; counts are numbers here.
    """

    submitter: str = "bertbench"
    """Your organisation. Set it before the ten runs of a result, because the logs name it."""
    division: Literal["closed", "open"]
    """MLPerf's division. `closed` fixes the model, the data and most of the recipe, so that results are comparable.
    Choose `open` to change what closed fixes."""
    status: Status
    """MLPerf's availability category: whether others can buy or rent the machine."""
    system_name: str
    """Name of the machine, as a table of results shows it."""
    number_of_nodes: Count
    """Number of machines in the run. Change it with the size of your allocation; `config init` writes a file for
    another size."""
    host_processors_per_node: str = ""
    host_processor_model_name: str = ""
    host_processor_core_count: str = ""
    host_processor_vcpu_count: str = ""
    host_processor_frequency: str = ""
    host_processor_caches: str = ""
    host_processor_interconnect: str = ""
    host_memory_capacity: str = ""
    host_storage_type: str = ""
    host_storage_capacity: str = ""
    host_networking: str = ""
    host_networking_topology: str = ""
    host_memory_configuration: str = ""
    accelerators_per_node: NonNegativeInt = 0
    """Number of GPUs in each machine; 0 for a machine without."""
    accelerator_model_name: str = ""
    """Name of the GPU. Forecasts depend on it."""
    accelerator_host_interconnect: str = ""
    accelerator_frequency: str = ""
    accelerator_on_chip_memories: str = Field(default="", alias="accelerator_on-chip_memories")
    accelerator_memory_configuration: str = ""
    accelerator_memory_capacity: str = ""
    accelerator_interconnect: str = ""
    accelerator_interconnect_topology: str = ""
    cooling: str = ""
    hw_notes: str = ""
    framework: str = ""
    other_software_stack: str = ""
    operating_system: str = ""
    sw_notes: str = ""

    def description(self) -> dict[str, str]:
        """Return the 33 fields under MLPerf's names, all as text: the official checker joins them as strings."""
        return {name: str(value) for name, value in self.model_dump(by_alias=True).items()}


class Model(Section):
    """Sizes of BERT."""

    vocab_size: Count
    """Rows of the embedding matrix: at least the tokenizer's entries. A multiple of 8 is faster on GPUs."""
    hidden_size: Count
    """Width of a token's hidden state; a multiple of `attention_heads`. 1,024 in BERT-Large, 768 in BERT-Base."""
    layers: Count
    """Encoder layers. 24 in BERT-Large, 12 in BERT-Base."""
    attention_heads: Count
    """Heads of each layer. 16 in BERT-Large, 12 in BERT-Base."""
    feed_forward_size: Count
    """Width inside a layer's feed-forward part. 4,096 in BERT-Large, 3,072 in BERT-Base."""
    max_positions: Annotated[int, Field(ge=8, le=512)]
    """Number of tokens in the longest sequence. The dataset must have been made for it."""
    hidden_dropout: Fraction = 0.1
    """Share of the hidden states that dropout sets to 0. 0 is faster, but only for the open division."""
    attention_dropout: Fraction = 0.1
    """Share of the attention weights that dropout sets to 0. 0 is faster, but only for the open division."""
    initializer_range: PositiveFloat = 0.02
    """Standard deviation of initial matrices. Lower it for deep models that diverge in their first steps."""
    initial_weights: Literal["random", "mimetic"] = "random"
    """`random`: weights are drawn as in BERT. `mimetic`: at first, heads attend to tokens at fixed distances (the token
    before, the one after, and so on), and the masked-LM head is the identity (model/mimetic.py)."""
    checkpoint: str | None = None
    """Weights that a run starts from: a file of `checkpoint import`, another run or its snapshot (default: random
    weights). The path is relative to DATADIR if that is set, else to data/."""

    def shape(self) -> BertShape:
        """Return the sizes as the model takes them."""
        return BertShape(**self.model_dump(exclude={"checkpoint", "initial_weights"}))


class Recipe(Section):
    """How text becomes samples; only `data prepare` reads it."""

    vocab_size: Count
    """Entries of the vocabulary that is trained when no --vocab is given. Fewer suit a small corpus."""
    dupe_factor: Count = 10
    """How many times each document is used, with new masks each time. Lower it for a quick try: the dataset shrinks
    with it."""
    short_seq_prob: Fraction = 0.1
    """Share of the sequences whose target length is drawn at random. Raise it for more short sequences."""
    masked_lm_prob: Share = 0.15
    """Share of the tokens that are predicted."""
    max_predictions_per_seq: Annotated[int, Field(ge=1, le=127)] = 76
    """Largest number of predicted tokens in a sequence: about `masked_lm_prob` times the longest sequence."""
    cut_to_target: bool = False
    """Cut each sequence to its target length. The MLPerf reference only cuts to the maximum length."""
    held_out_fraction: Share
    """Share of the documents that are kept for evaluation. No part of them is trained on."""
    held_out_samples: Count
    """Number of evaluation samples that are made from the held-out documents. More samples make accuracies more exact,
    and evaluations longer."""
    seed: NonNegativeInt = 12345
    """Seed by which masks, lengths and held-out documents are chosen. Another seed makes another dataset."""

    def options(self, max_seq_length: int) -> "SampleOptions":
        """Return the settings that the creation of samples needs."""
        from bertbench.data.text.sentence_pairs import SampleOptions  # noqa: PLC0415 - no run needs it

        return SampleOptions(
            max_seq_length,
            self.dupe_factor,
            self.short_seq_prob,
            self.masked_lm_prob,
            self.max_predictions_per_seq,
            self.cut_to_target,
        )


class Data(Section):
    """The training data and how a global batch is drawn and assigned to ranks."""

    path: str
    """Folder of the prepared dataset; relative to DATADIR if that is set, else to data/."""
    eval_path: str | None = None
    """Folder with the evaluation samples, if they aren't in `path`."""
    global_batch_size: Count | None = None
    """Samples per optimizer step, over all ranks. Give this or `local_batch`. This one keeps the recipe the same when
    the number of ranks changes."""
    local_batch: Count | None = None
    """Samples per optimizer step on each rank or, if `parallel` splits the model, on each data-parallel rank. Give it
    where the batch grows with the machine."""
    gradient_accumulation_steps: Count = 1
    """Number of parts in which a rank computes its samples of a step. Raise it where memory is short: the global batch
    stays the same."""
    balance: Method = "planned"
    """How a global batch is drawn and assigned to ranks (docs/balance.md): `planned` assigns it by cost and exchanges
    nothing; `none` assigns consecutive samples of the random order. Change it to compare methods."""
    equal_counts: bool = False
    """Give every rank the same number of samples (planned, planned_local). `loss.normalize` rank needs this, and so
    does the closed division."""
    strata_edges: tuple[Count, ...] = (128, 256, 384, 512)
    """Longest sequence of each stratum, in tokens. Stratified batches draw from each stratum."""
    strata_quotas: tuple[NonNegativeInt, ...] | None = None
    """Number of samples of each stratum in every rank's batch (stratified, stratified_presort; open division only).
    They must sum to the local batch. Default: the dataset's shares. Each stratum has a random order of its own. A
    stratum that is used up begins again in another order while the others continue, so samples of a stratum with a
    quota above its share repeat sooner than others. A stratum with quota 0 is never drawn. The log counts each
    stratum's samples."""
    recipe: Recipe | None = None
    """How `data prepare` makes the dataset. Without a recipe, the dataset must already exist."""

    @property
    def gives_one_batch(self) -> bool:
        """Return whether the batch is given once: globally or for a rank."""
        is_global = self.global_batch_size is not None
        is_local = self.local_batch is not None
        return is_global != is_local


class Loss(Section):
    """How per-token losses become one number."""

    normalize: Literal["global", "rank"] = "global"
    """`global`: mean over the global batch, the same for any number of ranks; `rank`: mean of the ranks' means,
    as the MLPerf reference computes it."""


class Evaluation(Section):
    """When a run evaluates, and when it is done."""

    target: Share = 0.72
    """Masked-LM accuracy at which the run stops; MLPerf's is 0.720. Lower it for a small model, or for a short try."""
    interval_samples: Count | None = None
    """Training samples between evaluations (default: by MLPerf's formula). Lower it to find the end of a short
    run more exactly."""
    batch_size: Count = 16
    """Samples per evaluation batch on each rank. Raise it as far as memory allows: accuracies stay the same."""
    max_samples: Count | None = None
    """Training samples after which the run gives up, if it hasn't reached `schedule.max_steps` before. Set it to give
    runs of several batch sizes the same limit."""


class Checkpoint(Section):
    """Snapshots that resume an interrupted run (docs/reliability.md), and the final weights."""

    every_steps: Count | None = None
    """Number of steps between snapshots (default: no snapshots). Set it for runs that may be interrupted."""
    keep: Count = 2
    """Number of snapshots to keep; older ones are deleted. With LAMB or Adam, each takes about three times the space of
    the weights."""
    final_weights: bool = True
    """Write the model when the run has ended, off the clock: weights.safetensors in the run's folder
    (docs/data.md). Switch it off where ten runs would fill the disk."""


class Precision(Section):
    """Number formats."""

    compute: PrecisionName = "fp32"
    """Format of matrix products and activations; weights, gradients and optimizer state stay fp32. `auto` measures
    whether bf16 is faster than fp32 on this processor. Use bf16 on GPUs from compute capability 8.0 on, fp16 on older
    ones. `fp8` computes all products of the encoder layers but attention's in 8 bits with delayed scaling, and leaves
    the rest in bf16 (docs/performance.md): for GPUs from compute capability 8.9 on, tried on none yet; on a CPU
    it is slower than bf16, for studies."""
    residual: ResidualName = "fp32"
    """Format of the hidden states between layers. `bf16` moves 8 % fewer bytes per layer on a GPU, and needs
    `compute` bf16 or fp8. `auto` takes it on a GPU that computes in either, unless the check at the start refuses it;
    elsewhere it is fp32. Set fp32 to rule out that it changes a result."""
    initial_loss_scale: PositiveFloat = 4096.0
    """First loss scale, used if gradients pass through fp16. As in MLPerf's published runs, it applies to the mean of
    the ranks' means. If it is too high, the first steps overflow and are skipped."""


class Compute(Section):
    """How the model's arithmetic is carried out; results don't depend on it, apart from rounding."""

    compile: CompileMode | None = None
    """`default`: torch.compile fuses the model's pieces between attention, and batches are rounded up to few sizes;
    `graphs` also replays whole steps as CUDA graphs, each filled up to one of a few sizes, all recorded before the
    clock starts (tried on one H100); `none`: neither; `auto`: the fastest of them that the other settings allow and
    that passes the check of a run's fast paths (training/self_check.py), with graphs only if the host takes more than
    70 % of a step's time to launch it. If it isn't given: `default` on cuda without
    parallel.tensor, `none` otherwise."""
    products: ProductsName = "auto"
    """Library for matrix products on a CPU: `torch` (MKL in fp32) or `onednn`. With `auto`, a run measures which is
    faster for each layer, from hidden size 256 on."""


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
