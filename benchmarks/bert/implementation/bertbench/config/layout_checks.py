"""The rules about how ranks share a model and a batch: `parallel` beside the sections that it splits."""

from bertbench.config.settings import Rule, Settings, broken, limited
from bertbench.config.step_checks import NOT_FP16

_SHARED_BALANCE = ("none", "stratified", "planned")  # whose samples depend on the number of data-parallel ranks alone


def layout_fits(settings: Settings) -> bool:
    """Return whether ranks can share the model and the batch as `parallel` says."""
    return not any(broken(LAYOUT_RULES, settings))


def can_be_laid_out(settings: Settings) -> bool:
    """Return whether the ranks of a model divide the ranks of the run: only then is there a layout."""
    return settings.world_size % (settings.parallel.tensor * settings.parallel.pipeline) == 0


def batch_is_given(settings: Settings) -> bool:
    """Return whether the batch is given once: globally or for a rank."""
    return (settings.data.global_batch_size is None) != (settings.data.local_batch is None)


def batch_divides(settings: Settings) -> bool:
    """Return whether the batch is given, and all data-parallel ranks get equally many samples."""
    given = batch_is_given(settings) and can_be_laid_out(settings)
    return given and settings.global_batch_size % settings.layout.data == 0


def _tensor_divides(settings: Settings) -> object:
    tensor, ranks = settings.parallel.tensor, settings.launch.ranks_per_node
    if ranks % tensor:
        return (
            f"parallel.tensor {tensor} doesn't divide the {ranks} ranks of a node, and its all-reduces must stay "
            "inside one; choose a divisor, or split by parallel.pipeline"
        )
    sizes = {f"model.{name}": getattr(settings.model, name) for name in ("attention_heads", "feed_forward_size")}
    undivided = [f"{name} {size}" for name, size in sizes.items() if size % tensor]
    return undivided and f"parallel.tensor {tensor} doesn't divide {undivided[0]}; choose a divisor"


def _microbatches_fill_the_pipeline(settings: Settings) -> object:
    parallel = settings.parallel
    pipeline, microbatches = parallel.pipeline, parallel.microbatches
    if parallel.schedule == "1f1b" and microbatches < pipeline:
        return f"parallel.microbatches {microbatches} is less than parallel.pipeline {pipeline}; 1f1b needs as many"
    return parallel.schedule == "interleaved" and microbatches % pipeline and (
        f"parallel.microbatches {microbatches} is not a multiple of parallel.pipeline {pipeline}, which the "
        "interleaved schedule needs; choose one"
    )  # fmt: skip


LAYOUT_RULES: tuple[Rule, ...] = (
    lambda s: (
        not can_be_laid_out(s)
        and f"parallel: tensor {s.parallel.tensor} x pipeline {s.parallel.pipeline} doesn't divide {s.world_size} "
        "ranks; choose sizes whose product divides them"
    ),
    lambda s: can_be_laid_out(s) and _tensor_divides(s),
    lambda s: (
        s.parallel.sequence
        and s.parallel.tensor == 1
        and "parallel.sequence splits tokens over the ranks of parallel.tensor, and that is 1; raise it, or leave "
        "parallel.sequence out"
    ),
    lambda s: (
        s.model.layers % (s.parallel.pipeline * s.parallel.virtual_stages)
        and f"parallel: pipeline {s.parallel.pipeline} x virtual_stages {s.parallel.virtual_stages} doesn't divide "
        f"model.layers {s.model.layers}; choose sizes whose product divides them"
    ),
    lambda s: (
        s.parallel.pipeline == 1 < s.parallel.microbatches * s.parallel.virtual_stages
        and "parallel.microbatches and parallel.virtual_stages need parallel.pipeline above 1; without a pipeline, "
        "set data.gradient_accumulation_steps"
    ),
    lambda s: (
        min(s.parallel.pipeline, s.data.gradient_accumulation_steps) > 1
        and "data.gradient_accumulation_steps: a pipeline accumulates over its microbatches; leave it out, set "
        "parallel.microbatches"
    ),
    _microbatches_fill_the_pipeline,
    lambda s: (
        s.parallel.pipeline > 1
        and batch_divides(s)
        and s.parallel.microbatches > s.local_batch
        and f"parallel.microbatches {s.parallel.microbatches} is more than the {s.local_batch} samples of a "
        "pipeline's step; lower it, or raise data.global_batch_size"
    ),
    lambda s: (
        (s.parallel.pipeline > 1 or s.parallel.virtual_stages == 1)  # else they need a pipeline first
        and (s.parallel.virtual_stages > 1) != (s.parallel.schedule == "interleaved")
        and f"parallel.virtual_stages {s.parallel.virtual_stages} doesn't go with parallel.schedule "
        f"{s.parallel.schedule}; interleaved wants at least 2, the others 1"
    ),
    lambda s: (
        s.parallel.fully_shard
        and s.parallel.tensor * s.parallel.pipeline > 1
        and "parallel.fully_shard gathers weights for every forward pass and is not combined with parallel.tensor or "
        "parallel.pipeline; leave one of them out"
    ),
    *limited(
        lambda s: s.parallel.splits,
        "belongs to whole models, and parallel splits this one",
        "parallel to one rank a model",
        {
            "clip.mode": ("none", "after"),
            "communication.compression": ("none",),
            "communication.hierarchical": (False,),
            "precision.compute": NOT_FP16,
            "precision.residual": ("fp32",),
            "optimizer.name": ("adam", "lamb"),
            "optimizer.sharded": (False,),  # parallel.fully_shard alone does more
            "optimizer.impl": ("auto", "torch"),
            "launch.rank_speeds": (None,),
            "sync.method": ("every_step",),
        },
    ),
    lambda s: (
        s.parallel.tensor > 1
        and s.compute.compile == "default"
        and "parallel.tensor: compute.compile default can't compile layers whose products are sharded; set it to "
        "none, or split by parallel.pipeline or parallel.fully_shard"
    ),
    lambda s: (
        s.parallel.tensor * s.parallel.pipeline > 1
        and s.data.balance not in _SHARED_BALANCE
        and f"parallel: data.balance {s.data.balance} deals by nodes; choose one of {', '.join(_SHARED_BALANCE)}"
    ),
)
