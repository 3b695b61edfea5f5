"""Define how ranks start, and which part of a model each holds: the sections `launch` and `parallel`, and `Layout`.

Tensor parallelism is innermost, so that its all-reduces of every layer stay inside a node; data parallelism comes next;
stages of the pipeline are furthest apart, because they send least (Narayanan et al. 2021, arXiv 2104.04473, takeaways
1 and 2).
"""

from typing import Literal, NamedTuple

from pydantic import Field, NonNegativeInt

from bertbench.common.section import Count, Section

PipelineSchedule = Literal["gpipe", "1f1b", "interleaved"]
_SHOWN_GROUPS = 6
"""How many tensor-parallel groups of a stage `Layout.lines` draws."""


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


class Parallel(Section):
    """How the model is split; data parallelism takes the rest of the ranks (docs/parallelism.md)."""

    tensor: Count = 1
    """Number of ranks that share every layer's heads and feed-forward columns, and the rows of the vocabulary; at most
    the ranks of a node. Set it where one layer is too large for a GPU."""
    sequence: bool = False
    """Split LayerNorms, dropout and residuals of every layer by tokens over the ranks of `tensor`. Activations shrink,
    and ranks send about as much as before. Set it with `tensor` above 1."""
    pipeline: Count = 1
    """Number of ranks that share the layers, one after the other. Set it where a model doesn't fit in a node's GPUs."""
    schedule: PipelineSchedule = "1f1b"
    """Order of forward and backward passes. `gpipe`: all forward passes first. `1f1b`: forward and backward in turn,
    which keeps the activations of `pipeline` microbatches instead of all. `interleaved`: like 1f1b, with
    `virtual_stages` on each rank."""
    virtual_stages: Count = 1
    """Number of stages on each rank of an interleaved pipeline. More stages shrink the bubble, and send more."""
    microbatches: Count = 1
    """Number of parts, of equal size in tokens, in which a rank's samples of a step go through the pipeline. More parts
    shrink the bubble; each needs at least one sample."""
    recompute: bool = False
    """Activation checkpointing: keep only the input of every layer, and compute the layer again in the backward pass.
    Set it where activations don't fit into memory; a step takes about a third longer."""
    fully_shard: bool = False
    """FSDP2: every rank keeps its share of weights, gradients and optimizer state, and gathers a layer's weights when
    it needs them. Set it where weights and optimizer state don't fit into memory."""

    @property
    def splits(self) -> bool:
        """Return whether a rank holds less than the whole model."""
        return self.tensor * self.pipeline > 1 or self.fully_shard


class Coordinate(NamedTuple):
    """One rank's place in each dimension."""

    pipeline: int
    data: int
    tensor: int


def bubble_share(pipeline: int, microbatches: int, virtual_stages: int = 1) -> float:
    """Return the bubble of a pipeline of equal stages: the share of its time that its ranks wait for other stages.

    (p - 1) / (v m + p - 1). Narayanan et al. 2021 (sections 2.2.1 and 2.2.2) give waiting over computing instead,
    (p - 1) / (v m).
    """
    return (pipeline - 1) / (virtual_stages * microbatches + pipeline - 1)


def vocabulary_rows(vocabulary: int, tensor: int, place: int) -> range:
    """Return the rows of the word embeddings that rank `place` of `tensor` ranks holds: the last holds the rest."""
    rows_of_a_rank = -(-vocabulary // tensor)
    begin = min(place * rows_of_a_rank, vocabulary)
    return range(begin, min(begin + rows_of_a_rank, vocabulary))


class Layout(NamedTuple):
    """Sizes of the dimensions; their product is the number of ranks."""

    data: int
    tensor: int = 1
    pipeline: int = 1
    virtual_stages: int = 1
    """Stages on each rank of a pipeline."""
    sequence: bool = False
    """Whether tensor-parallel ranks share the tokens of LayerNorms, dropout and residuals (`parallel.sequence`)."""

    @property
    def ranks(self) -> int:
        """Return the number of ranks."""
        return self.data * self.tensor * self.pipeline

    @property
    def stages(self) -> int:
        """Return the number of stages that the layers form; stage s is on rank s mod `pipeline` of its pipeline."""
        return self.pipeline * self.virtual_stages

    @property
    def token_shares(self) -> int:
        """Return the number of shares into which the tokens between a layer's products are split."""
        return self.tensor if self.sequence else 1

    def coordinate(self, rank: int) -> Coordinate:
        """Return a rank's place in each dimension."""
        rest, tensor = divmod(rank, self.tensor)
        return Coordinate(*divmod(rest, self.data), tensor)

    def stream(self, rank: int) -> int:
        """Return the number of the random stream that a rank draws dropout from: that of its tensor-parallel group."""
        return rank // self.tensor

    def lines(self) -> list[str]:
        """Draw the grid for people: a line for every stage of the pipeline and dimension."""
        lines = []
        for pipeline in range(self.pipeline):
            ranks_of_stage = self.data * self.tensor
            first_ranks = range(pipeline * ranks_of_stage, (pipeline + 1) * ranks_of_stage, self.tensor)
            groups = [self._tensor_parallel_ranks(first) for first in first_ranks]
            if len(groups) > _SHOWN_GROUPS:
                groups = [*groups[: _SHOWN_GROUPS - 1], "...", groups[-1]]
            lines.append(f"stage {pipeline}: {' | '.join(groups)}")
        return lines

    def _tensor_parallel_ranks(self, first: int) -> str:
        return f"{first}" if self.tensor == 1 else f"{first}-{first + self.tensor - 1}"
