"""Rules about how ranks share a model and a batch: about `parallel`, and about what it allows in other sections."""

from bertbench.config.batch_rules import batch_divides, can_be_laid_out
from bertbench.config.layout import vocabulary_rows
from bertbench.config.rules import Rule, allow_only, broken_rules
from bertbench.config.settings import Settings
from bertbench.config.step_rules import UNSCALED

_SHARED_BALANCE = ("none", "stratified", "planned")  # they need only the number of data-parallel ranks


def layout_fits(settings: Settings) -> bool:
    """Return whether ranks can share the model and the batch as `parallel` says."""
    return not any(broken_rules(LAYOUT_RULES, settings))


def _model_ranks_divide_all_ranks(settings: Settings) -> str | None:
    if can_be_laid_out(settings):
        return None
    return (
        f"parallel: tensor {settings.parallel.tensor} x pipeline {settings.parallel.pipeline} doesn't divide "
        f"{settings.world_size} ranks; choose sizes whose product divides them"
    )


def _tensor_ranks_divide_a_node_and_a_layer(settings: Settings) -> str | None:
    if not can_be_laid_out(settings):
        return None
    tensor, ranks = settings.parallel.tensor, settings.launch.ranks_per_node
    if ranks % tensor:
        return (
            f"parallel.tensor {tensor} doesn't divide the {ranks} ranks of a node, and its all-reduces must stay "
            "inside one; choose a divisor, or split by parallel.pipeline"
        )
    model = settings.model
    for name, size in (
        ("attention_heads", model.attention_heads),
        ("feed_forward_size", model.feed_forward_size),
    ):
        if size % tensor:
            return f"parallel.tensor {tensor} doesn't divide model.{name} {size}; choose a divisor"
    if not vocabulary_rows(model.vocab_size, tensor, tensor - 1):
        return (
            f"parallel.tensor {tensor}: the last rank would hold none of the {model.vocab_size} rows of "
            "model.vocab_size; choose fewer ranks or a larger vocabulary"
        )
    return None


def _sequence_needs_tensor_ranks(settings: Settings) -> str | None:
    if not settings.parallel.sequence or settings.parallel.tensor > 1:
        return None
    return (
        "parallel.sequence splits tokens over the ranks of parallel.tensor, which is 1; raise that, or leave "
        "parallel.sequence out"
    )


def _stages_divide_the_layers(settings: Settings) -> str | None:
    pipeline, virtual_stages = settings.parallel.pipeline, settings.parallel.virtual_stages
    if settings.model.layers % (pipeline * virtual_stages) == 0:
        return None
    return (
        f"parallel: pipeline {pipeline} x virtual_stages {virtual_stages} doesn't divide model.layers "
        f"{settings.model.layers}; choose sizes whose product divides them"
    )


def _microbatches_need_a_pipeline(settings: Settings) -> str | None:
    parallel = settings.parallel
    if parallel.pipeline > 1 or (parallel.microbatches == 1 and parallel.virtual_stages == 1):
        return None
    return (
        "parallel.microbatches and parallel.virtual_stages need parallel.pipeline above 1; without a pipeline, "
        "set data.gradient_accumulation_steps"
    )


def _pipelines_accumulate_over_microbatches(settings: Settings) -> str | None:
    if settings.parallel.pipeline == 1 or settings.data.gradient_accumulation_steps == 1:
        return None
    return (
        "data.gradient_accumulation_steps: a pipeline accumulates over its microbatches; leave it out, and set "
        "parallel.microbatches"
    )


def _microbatches_fill_the_pipeline(settings: Settings) -> str | None:
    parallel = settings.parallel
    pipeline, microbatches = parallel.pipeline, parallel.microbatches
    if parallel.schedule == "1f1b" and microbatches < pipeline:
        return (
            f"parallel.microbatches {microbatches} is less than parallel.pipeline {pipeline}; 1f1b needs at least as "
            "many"
        )
    if parallel.schedule == "interleaved" and microbatches % pipeline:
        return (
            f"parallel.microbatches {microbatches} is not a multiple of parallel.pipeline {pipeline}, which the "
            "interleaved schedule needs; choose one"
        )
    return None


def _every_microbatch_has_samples(settings: Settings) -> str | None:
    parallel = settings.parallel
    if parallel.pipeline == 1 or not batch_divides(settings) or parallel.microbatches <= settings.local_batch:
        return None
    return (
        f"parallel.microbatches {parallel.microbatches} is more than the {settings.local_batch} samples of a "
        "pipeline's step; lower it, or raise data.global_batch_size"
    )


def _interleaved_stages_are_virtual(settings: Settings) -> str | None:
    parallel = settings.parallel
    has_virtual_stages = parallel.virtual_stages > 1
    if has_virtual_stages and parallel.pipeline == 1:
        return None  # they need a pipeline first
    needs_virtual_stages = parallel.schedule == "interleaved"
    if has_virtual_stages == needs_virtual_stages:
        return None
    return (
        f"parallel.virtual_stages {parallel.virtual_stages} doesn't go with parallel.schedule "
        f"{parallel.schedule}; interleaved needs at least 2, the others 1"
    )


def _fully_sharded_models_are_not_split_otherwise(settings: Settings) -> str | None:
    parallel = settings.parallel
    if not parallel.fully_shard or parallel.tensor * parallel.pipeline == 1:
        return None
    return (
        "parallel.fully_shard gathers weights for every forward pass and can't be combined with parallel.tensor or "
        "parallel.pipeline; leave one of them out"
    )


def _sharded_products_are_not_compiled(settings: Settings) -> str | None:
    if settings.parallel.tensor == 1 or settings.compute.compile != "default":
        return None
    return (
        "parallel.tensor: compute.compile default can't compile layers whose products are sharded; set it to "
        "none, or split by parallel.pipeline or parallel.fully_shard"
    )


def _model_ranks_get_the_same_samples(settings: Settings) -> str | None:
    balance = settings.data.balance
    if settings.parallel.tensor * settings.parallel.pipeline == 1 or balance in _SHARED_BALANCE:
        return None
    return f"parallel: data.balance {balance} assigns samples by node; choose one of {', '.join(_SHARED_BALANCE)}"


LAYOUT_RULES: tuple[Rule, ...] = (
    _model_ranks_divide_all_ranks,
    _tensor_ranks_divide_a_node_and_a_layer,
    _sequence_needs_tensor_ranks,
    _stages_divide_the_layers,
    _microbatches_need_a_pipeline,
    _pipelines_accumulate_over_microbatches,
    _microbatches_fill_the_pipeline,
    _every_microbatch_has_samples,
    _interleaved_stages_are_virtual,
    _fully_sharded_models_are_not_split_otherwise,
    *allow_only(
        {
            "clip.mode": ("none", "after"),
            "communication.compression": ("none",),
            "precision.compute": UNSCALED,
            "precision.residual": ("auto", "fp32"),
            "optimizer.name": ("adam", "lamb"),
            "optimizer.sharded": (False,),  # parallel.fully_shard alone does more
            "optimizer.impl": ("auto", "torch"),
        },
        where=lambda settings: settings.parallel.splits,
        because="needs whole models, but parallel splits this one",
        instead="set parallel to one rank per model",
    ),
    _sharded_products_are_not_compiled,
    _model_ranks_get_the_same_samples,
)
