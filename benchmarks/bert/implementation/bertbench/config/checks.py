"""The rules that tie settings together: each says what is wrong, with the remedy.

A rule whose numbers follow from something that another rule refuses says nothing.
"""

from collections.abc import Iterator

from bertbench.config.closed import CLOSED_RULES
from bertbench.config.layout_checks import LAYOUT_RULES, batch_divides, batch_is_given, can_be_laid_out
from bertbench.config.settings import Rule, Settings, broken, limited, nearest_multiples
from bertbench.config.step_checks import GRAPH_RULES, SYNC_RULES, counts_vary


def problems(settings: Settings) -> Iterator[str]:
    """Yield everything in which settings don't go together."""
    return broken(RULES, settings)


def _batch_over_ranks(settings: Settings) -> object:
    if not (batch_is_given(settings) and can_be_laid_out(settings)) or batch_divides(settings):
        return None
    ranks, batch = settings.layout.data, settings.global_batch_size
    choices = nearest_multiples(batch, ranks)
    return f"global batch {batch} is not a multiple of {ranks} ranks; set data.local_batch, or choose {choices}"


def _scaling_keeps_betas(settings: Settings) -> object:
    tuned_at, optimizer = settings.scale_from_batch, settings.optimizer
    if tuned_at is None or optimizer.name != "adam" or not batch_is_given(settings):
        return None
    largest = int(tuned_at / (1 - min(optimizer.beta1, optimizer.beta2)))
    return settings.global_batch_size > largest and (
        f"scale_from_batch {tuned_at}: at global batch {settings.global_batch_size} a beta would be negative; choose a "
        f"global batch of at most {largest}"
    )


def _windows_hold_a_context(settings: Settings) -> object:
    windows = settings.finetune.windows(settings.model.max_positions)
    return windows.max_query_length + 3 >= windows.max_seq_length and (
        f"finetune.max_query_length {windows.max_query_length} and three special tokens leave no room for a context in "
        f"finetune.max_seq_length {windows.max_seq_length}; set it to at most {windows.max_seq_length - 4}"
    )


RULES: tuple[Rule, ...] = (
    lambda s: not batch_is_given(s) and "data: give exactly one of global_batch_size and local_batch",
    _batch_over_ranks,
    lambda s: (
        batch_divides(s)
        and s.local_batch % s.data.gradient_accumulation_steps
        and f"local batch {s.local_batch} is not a multiple of data.gradient_accumulation_steps "
        f"{s.data.gradient_accumulation_steps}; choose a divisor of the local batch"
    ),
    lambda s: (
        s.data.equal_counts
        and s.data.balance == "packed"
        and "data.equal_counts is impossible with data.balance packed, whose rows hold different numbers of samples; "
        "choose planned"
    ),
    lambda s: (
        s.loss.normalize == "rank"
        and (why := counts_vary(s))
        and f"loss.normalize rank takes the mean of the ranks' means, but {why}, or loss.normalize global"
    ),
    lambda s: (
        list(s.data.strata_edges) != sorted(set(s.data.strata_edges))
        and f"data.strata_edges {list(s.data.strata_edges)} must rise; sort them"
    ),
    lambda s: (
        s.model.hidden_size % s.model.attention_heads
        and f"model.hidden_size {s.model.hidden_size} is not a multiple of model.attention_heads "
        f"{s.model.attention_heads}; choose a multiple"
    ),
    lambda s: (
        s.model.initial_weights == "mimetic"
        and s.model.hidden_size % 2
        and "model.initial_weights mimetic pairs sines with cosines, but model.hidden_size "
        f"{s.model.hidden_size} is odd; choose an even one, or random"
    ),
    lambda s: (
        s.data.recipe
        and s.data.recipe.vocab_size > s.model.vocab_size
        and f"data.recipe.vocab_size {s.data.recipe.vocab_size} is larger than model.vocab_size "
        f"{s.model.vocab_size}; raise model.vocab_size to at least as much"
    ),
    lambda s: (
        s.schedule.warmup_steps > (most := s.schedule.max_steps - s.schedule.start_warmup_step)
        and f"schedule.warmup_steps {s.schedule.warmup_steps} would end after the run, schedule.max_steps "
        f"{s.schedule.max_steps}; set schedule.warmup_steps to at most {most}"
    ),
    lambda s: (
        s.scale_from_batch
        and s.optimizer.name != "adam"
        and "scale_from_batch: the scaling rule holds for adam only; remove it, or use adam"
    ),
    _scaling_keeps_betas,
    lambda s: (
        s.launch.device == "cuda"
        and s.hardware.accelerators_per_node != s.launch.ranks_per_node
        and f"launch.ranks_per_node {s.launch.ranks_per_node} differs from hardware.accelerators_per_node "
        f"{s.hardware.accelerators_per_node}; a CUDA system runs one rank a GPU, make them equal"
    ),
    *limited(
        lambda s: s.communication.hierarchical or s.optimizer.sharded or s.precision.compute == "fp16",
        "carries errors from step to step, by itself; an overflow would never leave them, and slices have none",
        "leave communication.hierarchical, optimizer.sharded and precision.compute fp16 out",
        {"communication.compression": ("none", "fp16", "bf16")},
    ),
    *limited(
        lambda s: s.optimizer.sharded,
        "works on whole gradients, and optimizer.sharded leaves a rank a slice of them",
        "leave optimizer.sharded out",
        {"communication.hierarchical": (False,), "optimizer.impl": ("auto", "torch", "triton")},
    ),
    lambda s: (
        s.optimizer.impl == "apex"
        and s.scales_loss
        and "optimizer.impl apex can't skip steps without stopping the device, which fp16 gradients need; set "
        "optimizer.impl to torch, or use bf16"
    ),
    lambda s: (
        s.optimizer.impl not in ("auto", "torch")
        and (s.launch.device == "cpu" or not s.optimizer.is_adam_or_lamb)
        and f"optimizer.impl {s.optimizer.impl} has kernels for adam and lamb on cuda only; set it to torch"
    ),
    lambda s: (
        s.precision.residual == "bf16" != s.precision.compute
        and f"precision.residual bf16 would round what precision.compute {s.precision.compute} keeps; set "
        "precision.compute to bf16, or precision.residual to fp32"
    ),
    lambda s: (
        s.checkpoint.every_steps
        and s.no_snapshots
        and f"checkpoint.every_steps: {s.no_snapshots}, or set checkpoint.every_steps to null"
    ),
    lambda s: (
        (s.finetune.max_seq_length or 0) > s.model.max_positions
        and f"finetune.max_seq_length {s.finetune.max_seq_length} is more than model.max_positions "
        f"{s.model.max_positions}; set it to at most {s.model.max_positions}"
    ),
    _windows_hold_a_context,
    lambda s: (
        isinstance(s.launch.rank_speeds, tuple)
        and len(s.launch.rank_speeds) != s.world_size
        and f"launch.rank_speeds has {len(s.launch.rank_speeds)} speeds for {s.world_size} ranks; give one a rank, "
        "or auto"
    ),
    *limited(
        lambda s: s.launch.rank_speeds is not None,
        "doesn't go with launch.rank_speeds, by which ranks get different numbers of samples",
        "leave launch.rank_speeds out",
        {"data.balance": ("planned",), "data.equal_counts": (False,), "loss.normalize": ("global",)},
    ),
    *GRAPH_RULES,
    *SYNC_RULES,
    *LAYOUT_RULES,
    *CLOSED_RULES,
)
