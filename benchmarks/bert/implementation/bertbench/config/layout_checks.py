"""The rules about how ranks share a model and a batch: `parallel` beside the sections that it splits."""

from collections.abc import Iterator

from bertbench.config.rule import broken, rule
from bertbench.config.settings import Settings

_SHARED_BALANCE = ("none", "stratified", "planned")  # whose samples depend on the number of data-parallel ranks alone


def layout_fits(settings: Settings) -> bool:
    """Return whether ranks can share the model and the batch as `parallel` says."""
    return not any(True for _ in broken(LAYOUT_RULES, settings))


def can_be_laid_out(settings: Settings) -> bool:
    """Return whether the ranks of a model divide the ranks of the run: only then is there a layout."""
    return settings.world_size % (settings.parallel.tensor * settings.parallel.pipeline) == 0


def batch_is_given(settings: Settings) -> bool:
    """Return whether the batch is given once: globally or for a rank."""
    return (settings.data.global_batch_size is None) != (settings.data.local_batch is None)


def batch_divides(settings: Settings) -> bool:
    """Return whether all data-parallel ranks get equally many samples."""
    return can_be_laid_out(settings) and settings.global_batch_size % settings.layout.data == 0


@rule("parallel.tensor", "parallel.pipeline", "launch.ranks_per_node", "hardware.number_of_nodes")
def _ranks_divide(settings: Settings) -> Iterator[str]:
    if not can_be_laid_out(settings):
        yield (
            f"parallel: tensor {settings.parallel.tensor} x pipeline {settings.parallel.pipeline} doesn't divide "
            f"{settings.world_size} ranks; choose sizes whose product divides them"
        )


@rule("parallel.tensor", "launch.ranks_per_node", "model.attention_heads", "model.feed_forward_size")
def _tensor_divides(settings: Settings) -> Iterator[str]:
    tensor, ranks = settings.parallel.tensor, settings.launch.ranks_per_node
    if not can_be_laid_out(settings):
        return
    if ranks % tensor:
        yield (
            f"parallel.tensor {tensor} doesn't divide the {ranks} ranks of a node, and its all-reduces must stay "
            "inside one; choose a divisor, or split by parallel.pipeline"
        )
        return
    for name in ("attention_heads", "feed_forward_size"):
        if getattr(settings.model, name) % tensor:
            yield (
                f"parallel.tensor {tensor} doesn't divide model.{name} {getattr(settings.model, name)}; "
                "choose a divisor"
            )
            return


@rule("parallel.sequence", "parallel.tensor")
def _tokens_have_ranks(settings: Settings) -> Iterator[str]:
    if settings.parallel.sequence and settings.parallel.tensor == 1:
        yield (
            "parallel.sequence splits tokens over the ranks of parallel.tensor, and that is 1; raise it, or leave "
            "parallel.sequence out"
        )


@rule("parallel.pipeline", "parallel.virtual_stages", "model.layers")
def _layers_divide(settings: Settings) -> Iterator[str]:
    pipeline, virtual = settings.parallel.pipeline, settings.parallel.virtual_stages
    if settings.model.layers % (pipeline * virtual):
        yield (
            f"parallel: pipeline {pipeline} x virtual_stages {virtual} doesn't divide model.layers "
            f"{settings.model.layers}; choose sizes whose product divides them"
        )


@rule("parallel.pipeline", "parallel.microbatches", "parallel.virtual_stages")
def _pipeline_is_there(settings: Settings) -> Iterator[str]:
    parallel = settings.parallel
    if parallel.pipeline == 1 and parallel.microbatches * parallel.virtual_stages > 1:
        yield (
            "parallel.microbatches and parallel.virtual_stages need parallel.pipeline above 1; without a pipeline, "
            "set data.gradient_accumulation_steps"
        )


@rule("parallel.pipeline", "data.gradient_accumulation_steps")
def _pipeline_accumulates(settings: Settings) -> Iterator[str]:
    if settings.parallel.pipeline > 1 and settings.data.gradient_accumulation_steps > 1:
        yield (
            "data.gradient_accumulation_steps: a pipeline accumulates over its microbatches; leave it out, set "
            "parallel.microbatches"
        )


@rule("parallel.microbatches", "parallel.pipeline", "parallel.schedule")
def _microbatches_fill_the_pipeline(settings: Settings) -> Iterator[str]:
    parallel = settings.parallel
    pipeline, microbatches = parallel.pipeline, parallel.microbatches
    if parallel.schedule == "1f1b" and microbatches < pipeline:
        yield f"parallel.microbatches {microbatches} is less than parallel.pipeline {pipeline}; 1f1b needs as many"
    if parallel.schedule == "interleaved" and microbatches % pipeline:
        yield (
            f"parallel.microbatches {microbatches} is not a multiple of parallel.pipeline {pipeline}, which the "
            "interleaved schedule needs; choose one"
        )


@rule("parallel.microbatches", "parallel.pipeline", "data.global_batch_size", "data.local_batch")
def _samples_fill_the_microbatches(settings: Settings) -> Iterator[str]:
    if settings.parallel.pipeline == 1 or not (batch_is_given(settings) and batch_divides(settings)):
        return
    if settings.parallel.microbatches > settings.local_batch:
        yield (
            f"parallel.microbatches {settings.parallel.microbatches} is more than the {settings.local_batch} samples "
            "of a pipeline's step; lower it, or raise data.global_batch_size"
        )


@rule("parallel.virtual_stages", "parallel.schedule")
def _stages_fit_the_schedule(settings: Settings) -> Iterator[str]:
    parallel = settings.parallel
    if parallel.pipeline == 1 and parallel.virtual_stages > 1:
        return  # they need a pipeline first
    if (parallel.virtual_stages > 1) != (parallel.schedule == "interleaved"):
        yield (
            f"parallel.virtual_stages {parallel.virtual_stages} doesn't go with parallel.schedule {parallel.schedule}; "
            "interleaved wants at least 2, the others 1"
        )


@rule("parallel.fully_shard", "parallel.tensor", "parallel.pipeline")
def _shards_are_not_split(settings: Settings) -> Iterator[str]:
    if settings.parallel.fully_shard and settings.parallel.tensor * settings.parallel.pipeline > 1:
        yield (
            "parallel.fully_shard gathers weights for every forward pass and is not combined with parallel.tensor or "
            "parallel.pipeline; leave one of them out"
        )


_SPLIT = "a model that is split over ranks (parallel)"


@rule("clip.mode", "parallel")
def _split_clips_after(settings: Settings) -> Iterator[str]:
    if settings.parallel.splits and settings.clip.mode not in ("none", "after"):
        yield f"{_SPLIT}: clip.mode {settings.clip.mode} works on whole gradients of one rank; set it to after"


@rule("communication.compression", "communication.hierarchical", "parallel")
def _split_has_no_hook(settings: Settings) -> Iterator[str]:
    communication = settings.communication
    if settings.parallel.splits and (communication.compression != "none" or communication.hierarchical):
        yield f"{_SPLIT}: communication.compression and communication.hierarchical belong to whole models; drop them"


@rule("precision.compute", "parallel")
def _split_has_no_loss_scale(settings: Settings) -> Iterator[str]:
    if settings.parallel.splits and settings.precision.compute == "fp16":
        yield f"{_SPLIT}: precision.compute fp16 needs a loss scale; use bf16"


@rule("optimizer.sharded", "parallel")
def _split_keeps_parts(settings: Settings) -> Iterator[str]:
    if settings.parallel.splits and settings.optimizer.sharded:
        yield f"{_SPLIT}: optimizer.sharded slices whole models; leave it out, or set parallel.fully_shard alone"


@rule("optimizer.impl", "parallel")
def _split_is_torchs(settings: Settings) -> Iterator[str]:
    if settings.parallel.splits and settings.optimizer.impl not in ("auto", "torch"):
        yield f"{_SPLIT}: optimizer.impl {settings.optimizer.impl} takes whole tensors; set it to torch"


@rule("compute.compile", "parallel.tensor")
def _split_compiles_pieces(settings: Settings) -> Iterator[str]:
    if settings.parallel.tensor > 1 and settings.compute.compile == "default":
        yield (
            "parallel.tensor: compute.compile default can't compile layers whose products are sharded; set it to none, "
            "or split by parallel.pipeline or parallel.fully_shard"
        )


@rule("data.balance", "parallel.tensor", "parallel.pipeline")
def _split_shares_samples(settings: Settings) -> Iterator[str]:
    parallel, method = settings.parallel, settings.data.balance
    if parallel.tensor * parallel.pipeline > 1 and method not in _SHARED_BALANCE:
        yield f"{_SPLIT}: data.balance {method} deals by nodes; choose one of {', '.join(_SHARED_BALANCE)}"


LAYOUT_RULES = (
    _ranks_divide, _tensor_divides, _tokens_have_ranks, _layers_divide, _pipeline_is_there, _pipeline_accumulates,
    _microbatches_fill_the_pipeline, _samples_fill_the_microbatches, _stages_fit_the_schedule,
    _shards_are_not_split, _split_clips_after, _split_has_no_hook, _split_has_no_loss_scale, _split_keeps_parts,
    _split_is_torchs, _split_compiles_pieces, _split_shares_samples,
)  # fmt: skip
