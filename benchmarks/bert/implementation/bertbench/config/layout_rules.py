"""Define the rules about ranks: the sizes of their batches, the strata that they draw from, the parts of a model."""

from bertbench.balance.plan import STRATIFIED, VARYING
from bertbench.config.layout import vocabulary_rows
from bertbench.config.rules import UNSCALED, Rule, allow_only, broken_rules
from bertbench.config.system import System

SPLIT_MODEL_VALUES: dict[str, tuple[object, ...]] = {
    "clip.mode": ("none", "after"),
    "communication.compression": ("none",),
    "precision.compute": UNSCALED,
    "precision.residual": ("auto", "fp32"),
    "optimizer.name": ("adam", "lamb"),
    "optimizer.sharded": (False,),  # parallel.fully_shard alone does more
    "optimizer.impl": ("auto", "torch"),
}
"""The settings that a split model limits, and the values that it allows."""
_SHARED_BALANCE = ("none", "stratified", "planned")  # they need only the number of data-parallel ranks


def can_be_laid_out(settings: System) -> bool:
    """Return whether the run's ranks are a multiple of one model's ranks, without which there is no layout."""
    return settings.world_size % (settings.parallel.tensor * settings.parallel.pipeline) == 0


def batch_divides(settings: System) -> bool:
    """Return whether the batch is given, and all data-parallel ranks get the same number of samples."""
    if not (settings.data.gives_one_batch and can_be_laid_out(settings)):
        return False
    return settings.global_batch_size % settings.layout.data == 0


def counts_vary(settings: System) -> str | None:
    """Return why ranks may get different numbers of samples, with a remedy; None if all get the same number."""
    data = settings.data
    if data.balance not in VARYING or data.equal_counts:
        return None
    remedy = "data.balance to planned and data.equal_counts" if data.balance == "packed" else "data.equal_counts"
    return f"data.balance {data.balance} gives ranks different numbers of samples; set {remedy}"


def layout_fits(settings: System) -> bool:
    """Return whether ranks can share the model and the batch as `parallel` says."""
    return not any(broken_rules(LAYOUT_RULES, settings))


def _nearest_multiples(number: int, divisor: int) -> str:
    """Return the multiples of `divisor` next to a number that isn't one, for a message."""
    below = number // divisor * divisor
    return f"{below} or {below + divisor}" if below else f"{divisor}"


def _batch_is_given_once(settings: System) -> str | None:
    if settings.data.gives_one_batch:
        return None
    return "data: give exactly one of global_batch_size and local_batch"


def _shares_may_differ(settings: System) -> bool:
    """Return whether a rank or a part without samples gets one of weight 0, as in fine-tuning."""
    return settings.task == "squad"


def _ranks_get_equal_batches(settings: System) -> str | None:
    if _shares_may_differ(settings) or not (settings.data.gives_one_batch and can_be_laid_out(settings)):
        return None
    if batch_divides(settings):
        return None
    ranks, batch = settings.layout.data, settings.global_batch_size
    choices = _nearest_multiples(batch, ranks)
    return f"global batch {batch} is not a multiple of {ranks} ranks; set data.local_batch, or choose {choices}"


def _accumulation_divides_the_local_batch(settings: System) -> str | None:
    steps = settings.data.gradient_accumulation_steps
    if _shares_may_differ(settings) or not batch_divides(settings) or settings.local_batch % steps == 0:
        return None
    return (
        f"local batch {settings.local_batch} is not a multiple of data.gradient_accumulation_steps {steps}; choose a "
        "divisor of the local batch"
    )


def _packed_rows_have_no_equal_counts(settings: System) -> str | None:
    if not settings.data.equal_counts or settings.data.balance != "packed":
        return None
    return (
        "data.equal_counts is impossible with data.balance packed, whose rows hold different numbers of samples; "
        "choose planned"
    )


def _mean_of_ranks_needs_equal_counts(settings: System) -> str | None:
    if settings.loss.normalize != "rank":
        return None
    reason = counts_vary(settings)
    if reason is None:
        return None
    return f"loss.normalize rank takes the mean of the ranks' means, but {reason}, or loss.normalize global"


def _strata_edges_rise(settings: System) -> str | None:
    edges = list(settings.data.strata_edges)
    if edges == sorted(set(edges)):
        return None
    return f"data.strata_edges {edges} must increase; sort them and remove duplicates"


def _draws_quotas(settings: System) -> bool:
    return settings.data.strata_quotas is not None and settings.data.balance in STRATIFIED


def _every_stratum_has_a_quota(settings: System) -> str | None:
    quotas, edges = settings.data.strata_quotas, settings.data.strata_edges
    if quotas is None or not _draws_quotas(settings) or len(quotas) == len(edges):
        return None
    return (
        f"data.strata_quotas has {len(quotas)} quotas for the {len(edges)} strata of data.strata_edges; give one for "
        "each, or null for the dataset's shares"
    )


def _quotas_fill_a_rank_s_batch(settings: System) -> str | None:
    quotas = settings.data.strata_quotas
    if quotas is None or not (_draws_quotas(settings) and batch_divides(settings)):
        return None
    total, samples = sum(quotas), settings.local_batch
    if total == samples:
        return None
    return (
        f"data.strata_quotas {list(quotas)} sum to {total}, but a rank has {samples} samples; choose quotas that sum "
        f"to {samples}, or null for the dataset's shares"
    )


def _quotas_cover_all_lengths(settings: System) -> str | None:
    longest = settings.model.max_positions
    last_edge = max(settings.data.strata_edges, default=0)
    if not _draws_quotas(settings) or last_edge >= longest:
        return None
    return (
        f"data.strata_quotas would never draw samples of more than {last_edge} tokens, the last of data.strata_edges; "
        f"raise that to model.max_positions {longest}, or set data.strata_quotas to null"
    )


BATCH_RULES: tuple[Rule, ...] = (
    _batch_is_given_once,
    _ranks_get_equal_batches,
    _accumulation_divides_the_local_batch,
    _packed_rows_have_no_equal_counts,
    _mean_of_ranks_needs_equal_counts,
    _strata_edges_rise,
    _every_stratum_has_a_quota,
    _quotas_fill_a_rank_s_batch,
    _quotas_cover_all_lengths,
)


def _every_gpu_has_one_rank(settings: System) -> str | None:
    ranks, gpus = settings.launch.ranks_per_node, settings.hardware.accelerators_per_node
    if settings.launch.device != "cuda" or gpus == ranks:
        return None
    return (
        f"launch.ranks_per_node {ranks} differs from hardware.accelerators_per_node {gpus}; a CUDA system runs one "
        "rank per GPU; make them equal"
    )


def _model_ranks_divide_all_ranks(settings: System) -> str | None:
    if can_be_laid_out(settings):
        return None
    return (
        f"parallel: tensor {settings.parallel.tensor} x pipeline {settings.parallel.pipeline} doesn't divide "
        f"{settings.world_size} ranks; choose sizes whose product divides them"
    )


def _tensor_ranks_divide_a_node_and_a_layer(settings: System) -> str | None:
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


def _sequence_needs_tensor_ranks(settings: System) -> str | None:
    if not settings.parallel.sequence or settings.parallel.tensor > 1:
        return None
    return (
        "parallel.sequence splits tokens over the ranks of parallel.tensor, which is 1; raise that, or leave "
        "parallel.sequence out"
    )


def _stages_divide_the_layers(settings: System) -> str | None:
    pipeline, virtual_stages = settings.parallel.pipeline, settings.parallel.virtual_stages
    if settings.model.layers % (pipeline * virtual_stages) == 0:
        return None
    return (
        f"parallel: pipeline {pipeline} x virtual_stages {virtual_stages} doesn't divide model.layers "
        f"{settings.model.layers}; choose sizes whose product divides them"
    )


def _microbatches_need_a_pipeline(settings: System) -> str | None:
    parallel = settings.parallel
    if parallel.pipeline > 1 or (parallel.microbatches == 1 and parallel.virtual_stages == 1):
        return None
    return (
        "parallel.microbatches and parallel.virtual_stages need parallel.pipeline above 1; without a pipeline, "
        "set data.gradient_accumulation_steps"
    )


def _pipelines_accumulate_over_microbatches(settings: System) -> str | None:
    if settings.parallel.pipeline == 1 or settings.data.gradient_accumulation_steps == 1:
        return None
    return (
        "data.gradient_accumulation_steps: a pipeline accumulates over its microbatches; leave it out, and set "
        "parallel.microbatches"
    )


def _microbatches_fill_the_pipeline(settings: System) -> str | None:
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


def _every_microbatch_has_samples(settings: System) -> str | None:
    parallel = settings.parallel
    if parallel.pipeline == 1 or not batch_divides(settings) or parallel.microbatches <= settings.local_batch:
        return None
    return (
        f"parallel.microbatches {parallel.microbatches} is more than the {settings.local_batch} samples of a "
        "pipeline's step; lower it, or raise data.global_batch_size"
    )


def _interleaved_stages_are_virtual(settings: System) -> str | None:
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


def _fully_sharded_models_are_not_split_otherwise(settings: System) -> str | None:
    parallel = settings.parallel
    if not parallel.fully_shard or parallel.tensor * parallel.pipeline == 1:
        return None
    return (
        "parallel.fully_shard gathers weights for every forward pass and can't be combined with parallel.tensor or "
        "parallel.pipeline; leave one of them out"
    )


def _sharded_products_are_not_compiled(settings: System) -> str | None:
    if settings.parallel.tensor == 1 or settings.compute.compile != "default":
        return None
    return (
        "parallel.tensor: compute.compile default can't compile layers whose products are sharded; set it to "
        "none, or split by parallel.pipeline or parallel.fully_shard"
    )


def _model_ranks_get_the_same_samples(settings: System) -> str | None:
    balance = settings.data.balance
    if settings.parallel.tensor * settings.parallel.pipeline == 1 or balance in _SHARED_BALANCE:
        return None
    return f"parallel: data.balance {balance} assigns samples by node; choose one of {', '.join(_SHARED_BALANCE)}"


LAYOUT_RULES: tuple[Rule, ...] = (
    _every_gpu_has_one_rank,
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
        SPLIT_MODEL_VALUES,
        where=lambda settings: settings.parallel.splits,
        because="needs whole models, but parallel splits this one",
        instead="set parallel to one rank per model",
    ),
    _sharded_products_are_not_compiled,
    _model_ranks_get_the_same_samples,
)
