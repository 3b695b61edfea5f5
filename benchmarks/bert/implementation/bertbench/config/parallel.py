"""The section `parallel` of a system file: how the model itself is split over ranks, and what that rules out."""

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from bertbench.config.section import Section

if TYPE_CHECKING:
    from bertbench.config.system import System

PipelineSchedule = Literal["gpipe", "1f1b", "interleaved"]
_SHARED_BALANCE = ("none", "stratified", "planned")  # whose samples depend on the number of data-parallel ranks alone


class Parallel(Section):
    """How the model is split; data parallelism takes the rest of the ranks (docs/parallelism.md)."""

    tensor: Annotated[int, Field(ge=1)] = 1
    """Ranks that share every layer's heads and feed-forward columns; at most those of a node."""
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


def misfit(system: "System") -> str | None:
    """Why a system can't be laid out as it says, with a remedy; None if it can."""
    parallel, ranks, model = system.parallel, system.world_size, system.model
    tensor, pipeline = parallel.tensor, parallel.pipeline
    if ranks % (tensor * pipeline):
        return (
            f"parallel: tensor {tensor} x pipeline {pipeline} doesn't divide {ranks} ranks; choose sizes whose product "
            "divides them"
        )
    if system.launch.ranks_per_node % tensor:
        return (
            f"parallel.tensor {tensor} doesn't divide the {system.launch.ranks_per_node} ranks of a node, and its "
            "all-reduces must stay inside one; choose a divisor, or split by parallel.pipeline"
        )
    for name in ("attention_heads", "feed_forward_size"):
        if getattr(model, name) % tensor:
            return f"parallel.tensor {tensor} doesn't divide model.{name} {getattr(model, name)}; choose a divisor"
    stages = pipeline * parallel.virtual_stages
    if model.layers % stages:
        return (
            f"parallel: pipeline {pipeline} x virtual_stages {parallel.virtual_stages} doesn't divide model.layers "
            f"{model.layers}; choose sizes whose product divides them"
        )
    return _pipeline_misfit(system) or _combination_misfit(system)


def _pipeline_misfit(system: "System") -> str | None:
    parallel, samples = system.parallel, system.local_batch
    pipeline, microbatches, schedule = parallel.pipeline, parallel.microbatches, parallel.schedule
    if pipeline == 1:
        refused = {
            "parallel.microbatches and parallel.virtual_stages need parallel.pipeline above 1; without a pipeline, set "
            "data.gradient_accumulation_steps": microbatches * parallel.virtual_stages > 1,
        }
    else:
        refused = {
            "data.gradient_accumulation_steps: a pipeline accumulates over its microbatches; leave it out, set "
            "parallel.microbatches": system.data.gradient_accumulation_steps > 1,
            f"parallel.microbatches {microbatches} is less than parallel.pipeline {pipeline}; 1f1b needs as many": (
                schedule == "1f1b" and microbatches < pipeline
            ),
            f"parallel.microbatches {microbatches} is not a multiple of parallel.pipeline {pipeline}, which the "
            "interleaved schedule needs; choose one": schedule == "interleaved" and microbatches % pipeline > 0,
            f"parallel.microbatches {microbatches} is more than the {samples} samples of a pipeline's step; lower it, "
            "or raise data.global_batch_size": microbatches > samples,
        }
    refused[
        f"parallel.virtual_stages {parallel.virtual_stages} doesn't go with parallel.schedule {schedule}; interleaved "
        "wants at least 2, the others 1"
    ] = (parallel.virtual_stages > 1) != (schedule == "interleaved")
    return _first(refused)


def _combination_misfit(system: "System") -> str | None:
    parallel = system.parallel
    if not parallel.splits:
        return None
    split = "a model that is split over ranks (parallel)"
    if parallel.fully_shard and parallel.tensor * parallel.pipeline > 1:
        return (
            "parallel.fully_shard gathers weights for every forward pass and is not combined with parallel.tensor or "
            "parallel.pipeline; leave one of them out"
        )
    refused = {
        f"clip.mode {system.clip.mode} works on whole gradients of one rank; set it to after": system.clip.mode
        not in ("none", "after"),
        "communication.compression and communication.hierarchical belong to DDP; leave them out": (
            system.communication.compression != "none" or system.communication.hierarchical
        ),
        "precision.compute fp16 needs a loss scale; use bf16": system.precision.compute == "fp16",
        "optimizer.sharded deals out whole tensors; leave it out, or set parallel.fully_shard alone": (
            system.optimizer.sharded
        ),
        "optimizer.impl apex takes whole tensors; set it to torch": system.optimizer.impl == "apex",
    }
    refused[f"data.balance {system.data.balance} deals by nodes; choose one of {', '.join(_SHARED_BALANCE)}"] = (
        parallel.tensor * parallel.pipeline > 1 and system.data.balance not in _SHARED_BALANCE
    )
    problem = _first(refused)
    return problem and f"{split}: {problem}"


def _first(refused: dict[str, bool]) -> str | None:
    """The first text that holds."""
    return next((text for text, holds in refused.items() if holds), None)
