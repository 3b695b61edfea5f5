"""The rules that tie settings together: each yields its problems, with the remedy.

A rule whose numbers follow from something that another rule refuses yields nothing.
"""

from collections.abc import Iterator

from bertbench.balance.plan import VARYING
from bertbench.config.closed import CLOSED_RULES
from bertbench.config.graph_checks import GRAPH_RULES
from bertbench.config.layout_checks import LAYOUT_RULES, batch_divides, batch_is_given, can_be_laid_out
from bertbench.config.optimizer_checks import OPTIMIZER_RULES
from bertbench.config.rule import Problem, broken, rule
from bertbench.config.settings import Settings
from bertbench.config.sync_checks import SYNC_RULES

_CARRYING = ("int8", "topk", "powersgd")  # compression's errors, from step to step


def problems(settings: Settings) -> Iterator[Problem]:
    """Yield everything in which settings don't go together."""
    return broken(RULES, settings)


@rule("data.global_batch_size", "data.local_batch")
def _one_batch(settings: Settings) -> Iterator[str]:
    if not batch_is_given(settings):
        yield "data: give exactly one of global_batch_size and local_batch"


@rule("data.global_batch_size", "data.local_batch", "launch.ranks_per_node", "hardware.number_of_nodes", "parallel")
def _batch_over_ranks(settings: Settings) -> Iterator[str]:
    if not (batch_is_given(settings) and can_be_laid_out(settings)) or batch_divides(settings):
        return
    ranks, batch = settings.layout.data, settings.global_batch_size
    below, above = batch - batch % ranks, batch - batch % ranks + ranks
    choices = f"{below} or {above}" if below else f"{above}"
    what = "ranks" if ranks == settings.world_size else "data-parallel ranks"
    yield f"global batch {batch} is not a multiple of {ranks} {what}; set data.local_batch, or choose {choices}"


@rule("data.gradient_accumulation_steps", "data.global_batch_size", "data.local_batch")
def _batch_over_parts(settings: Settings) -> Iterator[str]:
    parts = settings.data.gradient_accumulation_steps
    if batch_is_given(settings) and batch_divides(settings) and settings.local_batch % parts:
        yield (
            f"local batch {settings.local_batch} is not a multiple of data.gradient_accumulation_steps {parts}; "
            "choose a divisor of the local batch"
        )


@rule("data.equal_counts", "data.balance")
def _counts_of_rows(settings: Settings) -> Iterator[str]:
    if settings.data.equal_counts and settings.data.balance == "packed":
        yield (
            "data.equal_counts is impossible with data.balance packed, whose rows hold different numbers of "
            "samples; choose planned"
        )


@rule("loss.normalize", "data.balance", "data.equal_counts")
def _counts_of_means(settings: Settings) -> Iterator[str]:
    method = settings.data.balance
    if settings.loss.normalize == "rank" and method in VARYING and not settings.data.equal_counts:
        remedy = "choose planned with data.equal_counts" if method == "packed" else "set data.equal_counts"
        yield (
            f"loss.normalize rank takes the mean of the ranks' means, but data.balance {method} gives ranks "
            f"different numbers of samples; {remedy}, or loss.normalize global"
        )


@rule("data.strata_edges")
def _edges_rise(settings: Settings) -> Iterator[str]:
    if list(settings.data.strata_edges) != sorted(set(settings.data.strata_edges)):
        yield f"data.strata_edges {list(settings.data.strata_edges)} must rise; sort them"


@rule("model.hidden_size", "model.attention_heads")
def _heads_divide(settings: Settings) -> Iterator[str]:
    model = settings.model
    if model.hidden_size % model.attention_heads:
        yield (
            f"model.hidden_size {model.hidden_size} is not a multiple of model.attention_heads "
            f"{model.attention_heads}; choose a multiple"
        )


@rule("model.hidden_size", "model.initial_attention")
def _positions_rotate(settings: Settings) -> Iterator[str]:
    model = settings.model
    if model.initial_attention == "neighbours" and model.hidden_size % 2:
        yield (
            "model.initial_attention neighbours pairs sines with cosines, but model.hidden_size "
            f"{model.hidden_size} is odd; choose an even one, or random"
        )


@rule("data.recipe.vocab_size", "model.vocab_size")
def _vocabulary_fits(settings: Settings) -> Iterator[str]:
    model, recipe = settings.model, settings.data.recipe
    if recipe is not None and recipe.vocab_size > model.vocab_size:
        yield (
            f"data.recipe.vocab_size {recipe.vocab_size} is larger than model.vocab_size {model.vocab_size}; "
            "raise model.vocab_size to at least as much"
        )


@rule("schedule.warmup_steps", "schedule.start_warmup_step", "schedule.max_steps")
def _warm_up_ends_in_the_run(settings: Settings) -> Iterator[str]:
    schedule = settings.schedule
    most = schedule.max_steps - schedule.start_warmup_step
    if schedule.warmup_steps > most:
        yield (
            f"schedule.warmup_steps {schedule.warmup_steps} would end after the run, schedule.max_steps "
            f"{schedule.max_steps}; set schedule.warmup_steps to at most {most}"
        )


@rule("scale_from_batch", "optimizer.name")
def _scaling_is_adams(settings: Settings) -> Iterator[str]:
    if settings.scale_from_batch is not None and settings.optimizer.name != "adam":
        yield "scale_from_batch: the scaling rule holds for adam only; remove it, or use adam"


@rule("scale_from_batch", "data.global_batch_size", "data.local_batch", "optimizer.beta1", "optimizer.beta2")
def _scaling_keeps_betas(settings: Settings) -> Iterator[str]:
    tuned_at, optimizer = settings.scale_from_batch, settings.optimizer
    if tuned_at is None or optimizer.name != "adam" or not batch_is_given(settings):
        return
    largest = tuned_at / (1 - min(optimizer.beta1, optimizer.beta2))
    if settings.global_batch_size > largest:
        yield (
            f"scale_from_batch {tuned_at}: at global batch {settings.global_batch_size} a beta would be negative; "
            f"choose a global batch of at most {int(largest)}"
        )


@rule("launch.device", "launch.ranks_per_node", "hardware.accelerators_per_node")
def _one_rank_a_gpu(settings: Settings) -> Iterator[str]:
    ranks, gpus = settings.launch.ranks_per_node, settings.hardware.accelerators_per_node
    if settings.launch.device == "cuda" and gpus != ranks:
        yield (
            f"launch.ranks_per_node {ranks} differs from hardware.accelerators_per_node {gpus}; a CUDA system runs "
            "one rank a GPU, make them equal"
        )


@rule("communication.compression", "communication.hierarchical")
def _errors_take_their_own_way(settings: Settings) -> Iterator[str]:
    compression = settings.communication.compression
    if compression in _CARRYING and settings.communication.hierarchical:
        yield (
            f"communication.hierarchical true does nothing for communication.compression {compression}, which makes "
            f"its own {'all-reduces' if compression == 'powersgd' else 'exchanges'}; leave one of them out"
        )


@rule("communication.hierarchical", "optimizer.sharded")
def _slices_cross_nodes_at_once(settings: Settings) -> Iterator[str]:
    if settings.communication.hierarchical and settings.optimizer.sharded:
        yield (
            "communication.hierarchical true sums whole gradients, optimizer.sharded true scatters them over all "
            "ranks; leave one of them out"
        )


@rule("communication.compression", "precision.compute")
def _errors_never_overflow(settings: Settings) -> Iterator[str]:
    compression = settings.communication.compression
    if compression in _CARRYING and settings.precision.compute == "fp16":
        yield (
            f"communication.compression {compression} carries errors from step to step, and an overflow of "
            "precision.compute fp16 would never leave them; use bf16 or fp32"
        )


@rule("optimizer.sharded", "communication.compression")
def _errors_sum_whole_gradients(settings: Settings) -> Iterator[str]:
    compression = settings.communication.compression
    if settings.optimizer.sharded and compression in _CARRYING:
        yield (
            "optimizer.sharded leaves a rank only its slice of the gradients' sum, which communication.compression "
            f"{compression} has no way to form; leave optimizer.sharded out, or choose bf16"
        )


@rule("optimizer.sharded", "optimizer.impl")
def _apex_takes_whole_tensors(settings: Settings) -> Iterator[str]:
    if settings.optimizer.sharded and settings.optimizer.impl == "apex":
        yield (
            "optimizer.sharded updates slices of tensors, and optimizer.impl apex would take the norms of slices for "
            "those of whole tensors; leave optimizer.sharded out, or set optimizer.impl to torch"
        )


@rule("optimizer.impl", "precision.compute", "communication.compression")
def _apex_skips_no_step(settings: Settings) -> Iterator[str]:
    if settings.optimizer.impl == "apex" and settings.scales_loss:
        yield (
            "optimizer.impl apex can't skip steps without stopping the device, which fp16 gradients need; "
            "set optimizer.impl to torch, or use bf16"
        )


@rule("precision.residual", "precision.compute", "parallel")
def _residual_fits(settings: Settings) -> Iterator[str]:
    if settings.precision.residual == "bf16":
        if settings.precision.compute != "bf16":
            yield (
                f"precision.residual bf16 would round what precision.compute {settings.precision.compute} keeps; set "
                "precision.compute to bf16, or precision.residual to fp32"
            )
        if settings.parallel.splits:
            yield "precision.residual bf16 is for whole models; set it to fp32, or parallel to one rank a model"


@rule("optimizer.impl", "launch.device")
def _kernels_need_a_gpu(settings: Settings) -> Iterator[str]:
    if settings.optimizer.impl not in ("auto", "torch") and settings.launch.device == "cpu":
        yield f"optimizer.impl {settings.optimizer.impl} needs launch.device cuda; set optimizer.impl to torch"


@rule("checkpoint.every_steps", "communication.compression", "optimizer.impl")
def _snapshots_are_whole(settings: Settings) -> Iterator[str]:
    if settings.checkpoint.every_steps is not None and settings.no_snapshots is not None:
        yield f"checkpoint.every_steps: {settings.no_snapshots}, or set checkpoint.every_steps to null"


@rule("finetune.max_seq_length", "model.max_positions")
def _windows_fit_the_model(settings: Settings) -> Iterator[str]:
    length, most = settings.finetune.max_seq_length, settings.model.max_positions
    if length is not None and length > most:
        yield f"finetune.max_seq_length {length} is more than model.max_positions {most}; set it to at most {most}"


@rule("finetune.max_query_length", "finetune.max_seq_length", "model.max_positions")
def _windows_hold_a_context(settings: Settings) -> Iterator[str]:
    windows = settings.finetune.windows(settings.model.max_positions)
    if windows.max_query_length + 3 >= windows.max_seq_length:
        yield (
            f"finetune.max_query_length {windows.max_query_length} and three special tokens leave no room for a "
            f"context in finetune.max_seq_length {windows.max_seq_length}; set it to at most "
            f"{windows.max_seq_length - 4}"
        )


@rule("launch.rank_speeds", "launch.rebalance_every_steps", "launch.ranks_per_node", "hardware.number_of_nodes")
def _speeds_of_all_ranks(settings: Settings) -> Iterator[str]:
    speeds = settings.launch.rank_speeds
    if isinstance(speeds, tuple) and len(speeds) != settings.world_size:
        yield f"launch.rank_speeds has {len(speeds)} speeds for {settings.world_size} ranks; give one a rank, or auto"
    if speeds is None and settings.launch.rebalance_every_steps is not None:
        yield "launch.rebalance_every_steps does nothing without launch.rank_speeds; set that to auto"


@rule("launch.rank_speeds", "data.balance", "data.equal_counts", "loss.normalize", "parallel")
def _speeds_need_an_unequal_deal(settings: Settings) -> Iterator[str]:
    if settings.launch.rank_speeds is None:
        return
    what = "launch.rank_speeds gives ranks different numbers of samples"
    if settings.data.balance != "planned":
        yield f"{what}, data.balance {settings.data.balance} doesn't; choose planned"
    if settings.data.equal_counts or settings.loss.normalize == "rank":
        yield f"{what}; set data.equal_counts to false and loss.normalize to global"
    if settings.parallel.splits:
        yield f"{what}, and the ranks of a split model (parallel) share theirs; leave one of them out"


RULES = (
    _one_batch, _batch_over_ranks, _batch_over_parts, _counts_of_rows, _counts_of_means, _edges_rise, _heads_divide,
    _positions_rotate,
    _vocabulary_fits, _warm_up_ends_in_the_run, _scaling_is_adams, _scaling_keeps_betas, _one_rank_a_gpu,
    _errors_take_their_own_way, _errors_never_overflow, _errors_sum_whole_gradients, _apex_takes_whole_tensors,
    _apex_skips_no_step, _residual_fits, _kernels_need_a_gpu, _snapshots_are_whole, _windows_fit_the_model,
    _windows_hold_a_context, _speeds_of_all_ranks, _speeds_need_an_unequal_deal, *GRAPH_RULES, *SYNC_RULES,
    *LAYOUT_RULES, *OPTIMIZER_RULES, *CLOSED_RULES,
)  # fmt: skip
