"""The section `parallel` of a system file: how the model itself is split over ranks."""

from typing import Annotated, Literal

from pydantic import Field

from bertbench.common.section import Section

PipelineSchedule = Literal["gpipe", "1f1b", "interleaved"]


class Parallel(Section):
    """How the model is split; data parallelism takes the rest of the ranks (docs/parallelism.md)."""

    tensor: Annotated[int, Field(ge=1)] = 1
    """Ranks that share every layer's heads and feed-forward columns; at most those of a node."""
    sequence: bool = False
    """Split LayerNorms, dropout and residuals of every layer by tokens over the ranks of `tensor`: activations shrink,
    and what ranks send stays as much."""
    pipeline: Annotated[int, Field(ge=1)] = 1
    """Ranks that share the layers, one after the other."""
    schedule: PipelineSchedule = "1f1b"
    """Order of forward and backward passes: `gpipe` all forward first; `1f1b` in turn, which keeps the activations of
    `pipeline` microbatches instead of all; `interleaved` the same with `virtual_stages` on each rank."""
    virtual_stages: Annotated[int, Field(ge=1)] = 1
    """Stages on each rank of an interleaved pipeline."""
    microbatches: Annotated[int, Field(ge=1)] = 1
    """Parts of one size in tokens that a rank's samples of a step go through the pipeline in."""
    recompute: bool = False
    """Keep only the input of every layer, and compute the layer again in the backward pass."""
    fully_shard: bool = False
    """FSDP2: every rank keeps its share of weights, gradients and optimizer state, and gathers a layer's weights when
    it needs them."""

    @property
    def splits(self) -> bool:
        """Whether a rank holds less than the whole model."""
        return self.tensor * self.pipeline > 1 or self.fully_shard
