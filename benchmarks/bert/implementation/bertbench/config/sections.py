"""Define the sections of a system file that have no file of their own."""

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat

from bertbench.balance.assignment import RowOrder
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


class Launch(Section):
    """How processes start on the machine."""

    ranks_per_node: Count
    """Processes on each node: one for each GPU, or a few on a CPU. On a CPU, try one for every few cores."""
    device: Literal["cpu", "cuda"]
    """Where tensors live. Gradients are summed by NCCL on cuda, and by gloo or shared memory on cpu."""
    port: int = Field(default=0, ge=0, le=65535)
    """Port on the first node where the ranks meet; 0 takes any free one, on a single node only. Set it where a firewall
    opens only some ports."""
    clear_caches: bool = False
    """Drop the operating system's page cache before a run, as MLPerf asks of submissions. It needs root; set it for
    results that you submit."""
    timeout_s: Count = 120
    """Seconds within which all ranks must meet. Raise it where nodes of a job start minutes apart."""
    stall_timeout_s: Count = 60
    """Seconds without a sign of life after which a rank counts as stopped, or lost with its node, and the run ends.
    Raise it where processes are suspended for long."""
    progress_timeout_s: Count = 600
    """Seconds that a living rank may spend on a step, an evaluation batch or a snapshot before the run ends. A GPU with
    steps to compute may take a tenth of that without finishing one. Raise it if steps take minutes; lower it to end a
    hung job sooner."""
    bind_cores: bool = False
    """Bind each rank to its own cores: those near its GPU, or its part of the CPU. Linux only. Leave it off where a
    launcher already binds ranks."""
    walltime_minutes: Count = 60
    """Minutes that Slurm grants a run, including its initialisation. `estimate` says how long a run takes."""
    max_restarts: NonNegativeInt = 0
    """How many times all ranks are restarted from the last snapshot after one dies (docs/reliability.md). Set it for
    runs that take hours, together with `checkpoint.every_steps`."""


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
    shard_samples: Count = 65_536
    """Number of samples in each file of the dataset. Lower it for smaller files."""
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
    deal: RowOrder = "snake"
    """How samples are assigned if `balance` sorts them. `raster`: every row from the first rank to the last. `snake`:
    the direction changes with every row."""
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


class Loss(Section):
    """How per-token losses become one number."""

    normalize: Literal["global", "rank"] = "global"
    """`global`: mean over the global batch, the same for any number of ranks; `rank`: mean of the ranks' means,
    as the MLPerf reference computes it."""


class Schedule(Section):
    """Learning rate over steps (formula in config/optimizer.py)."""

    max_steps: Count
    """Number of steps after which the run gives up. The learning rate reaches its final value by then, unless
    `decay_steps` says otherwise, so change both with the batch."""
    decay_steps: Count | None = None
    """Step at which the rate reaches its final value (default: `max_steps`)."""
    decay_from: Literal["step_0", "warmup_steps"] = "step_0"
    """Step from which the decay is counted. `step_0`: as in the MLPerf reference; the rate falls where warm-up ends.
    `warmup_steps`: from step `warmup_steps`, even if warm-up starts before step 0 and so ends earlier, as in the
    published runs of arXiv 2402.02447; the rate then rises above `optimizer.learning_rate` where warm-up ends."""
    first_step: Literal[0, 1] = 0
    """Number of the first step in the formula. With 0, step s, counted from 0, has rate(s), as in the MLPerf reference.
    With 1, it has rate(s + 1), as in the published runs of NVIDIA and of arXiv 2402.02447."""
    warmup_steps: NonNegativeInt = 0
    """Number of steps in which the rate rises from 0. Raise it where the first steps diverge."""
    start_warmup_step: int = 0
    """Step at which warm-up starts; may be negative."""
    end_learning_rate: NonNegativeFloat = 0.0
    """Rate after the last step of the decay."""


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
    (docs/checkpoint.md). Switch it off where ten runs would fill the disk."""


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
