"""How a model is split, and which rank holds which part of it: the section `parallel` and plain arithmetic.

Tensor parallelism is innermost, so that its all-reduces of every layer stay inside a node; data parallelism comes next;
stages of the pipeline are furthest apart, because they send least (Narayanan et al. 2021, arXiv 2104.04473, takeaways
1 and 2).
"""

from typing import Literal, NamedTuple

from bertbench.common.section import Count, Section


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
    """Return the rows of the word embeddings that rank `place` of `tensor` ranks holds: the last one has the rest."""
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
        """All ranks."""
        return self.data * self.tensor * self.pipeline

    @property
    def stages(self) -> int:
        """Stages that the layers are cut into: stage s is on rank s mod `pipeline` of the pipeline."""
        return self.pipeline * self.virtual_stages

    @property
    def token_shares(self) -> int:
        """Shares that the tokens between a layer's products are split into."""
        return self.tensor if self.sequence else 1

    def coordinate(self, rank: int) -> Coordinate:
        """Where a rank stands."""
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
            if len(groups) > _SHOWN:
                groups = [*groups[: _SHOWN - 1], "...", groups[-1]]
            lines.append(f"stage {pipeline}: {' | '.join(groups)}")
        return lines

    def _tensor_parallel_ranks(self, first: int) -> str:
        return f"{first}" if self.tensor == 1 else f"{first}-{first + self.tensor - 1}"


_SHOWN = 6

PipelineSchedule = Literal["gpipe", "1f1b", "interleaved"]


class Parallel(Section):
    """How the model is split; data parallelism takes the rest of the ranks (docs/parallelism.md)."""

    tensor: Count = 1
    """Ranks that share every layer's heads and feed-forward columns, and the rows of the vocabulary; at most those of a
    node. Set it where one layer is too large for a GPU."""
    sequence: bool = False
    """Split LayerNorms, dropout and residuals of every layer by tokens over the ranks of `tensor`: activations shrink,
    and ranks send about as much as before. Set it with `tensor` above 1."""
    pipeline: Count = 1
    """Ranks that share the layers, one after the other. Set it where a model doesn't fit in a node's GPUs."""
    schedule: PipelineSchedule = "1f1b"
    """Order of forward and backward passes: `gpipe` all forward first; `1f1b` in turn, which keeps the activations of
    `pipeline` microbatches instead of all; `interleaved` the same with `virtual_stages` on each rank."""
    virtual_stages: Count = 1
    """Stages on each rank of an interleaved pipeline. More shrink the bubble, and send more."""
    microbatches: Count = 1
    """Parts, of one size in tokens, in which a rank's samples of a step go through the pipeline. More shrink the
    bubble; each needs at least one sample."""
    recompute: bool = False
    """Activation checkpointing: keep only the input of every layer, and compute the layer again in the backward pass.
    Set it where activations don't fit; a step takes about a third longer."""
    fully_shard: bool = False
    """FSDP2: every rank keeps its share of weights, gradients and optimizer state, and gathers a layer's weights when
    it needs them. Set it where weights and optimizer state don't fit."""

    @property
    def splits(self) -> bool:
        """Whether a rank holds less than the whole model."""
        return self.tensor * self.pipeline > 1 or self.fully_shard
