"""Collect all rules between settings, and define those about models, schedules, optimizers and fine-tuning."""

from collections.abc import Iterator

from bertbench.config.batch_rules import BATCH_RULES, batch_is_given
from bertbench.config.closed import CLOSED_RULES
from bertbench.config.layout_rules import LAYOUT_RULES
from bertbench.config.optimizer import MOST_SUMMED_RANKS
from bertbench.config.rules import Rule, allow_only, broken_rules
from bertbench.config.settings import Settings
from bertbench.config.step_rules import GRAPH_RULES
from bertbench.model.options import FP8_STEP, without_fp8


def problems(settings: Settings) -> Iterator[str]:
    """Yield a message for each way in which settings don't go together."""
    return broken_rules(RULES, settings)


def _heads_divide_the_hidden_size(settings: Settings) -> str | None:
    hidden, heads = settings.model.hidden_size, settings.model.attention_heads
    if hidden % heads == 0:
        return None
    return f"model.hidden_size {hidden} is not a multiple of model.attention_heads {heads}; choose a multiple"


def _mimetic_weights_have_an_even_width(settings: Settings) -> str | None:
    hidden = settings.model.hidden_size
    if settings.model.initial_weights != "mimetic" or hidden % 2 == 0:
        return None
    return (
        f"model.initial_weights mimetic pairs sines with cosines, but model.hidden_size {hidden} is odd; choose an "
        "even one, or random"
    )


def _model_knows_the_datas_vocabulary(settings: Settings) -> str | None:
    recipe = settings.data.recipe
    if recipe is None or recipe.vocab_size <= settings.model.vocab_size:
        return None
    return (
        f"data.recipe.vocab_size {recipe.vocab_size} is larger than model.vocab_size {settings.model.vocab_size}; "
        "raise model.vocab_size to at least that"
    )


def _warm_up_ends_within_the_run(settings: Settings) -> str | None:
    schedule = settings.schedule
    most = schedule.max_steps - schedule.start_warmup_step
    if schedule.warmup_steps <= most:
        return None
    return (
        f"schedule.warmup_steps {schedule.warmup_steps} would end after the run (schedule.max_steps "
        f"{schedule.max_steps}); set schedule.warmup_steps to at most {most}"
    )


def _decay_lasts_beyond_its_start(settings: Settings) -> str | None:
    schedule = settings.schedule
    decay_steps = schedule.decay_steps or schedule.max_steps
    if schedule.decay_from == "step_0" or schedule.warmup_steps < decay_steps:
        return None
    return (
        f"schedule.decay_from warmup_steps: the decay would begin at step {schedule.warmup_steps} and end at step "
        f"{decay_steps}; raise schedule.decay_steps above {schedule.warmup_steps}, or set schedule.decay_from to step_0"
    )


def _only_adam_is_scaled(settings: Settings) -> str | None:
    if settings.scale_from_batch is None or settings.optimizer.name == "adam":
        return None
    return "scale_from_batch: the scaling rule holds for adam only; remove it, or use adam"


def _a_scale_rule_has_a_batch_to_scale_from(settings: Settings) -> str | None:
    if settings.scale_rule is None or settings.scale_from_batch is not None:
        return None
    return (
        f"scale_rule {settings.scale_rule}: there is nothing to scale without scale_from_batch; set that to the batch "
        "that optimizer and schedule were tuned at, or remove scale_rule"
    )


def _scaled_betas_stay_positive(settings: Settings) -> str | None:
    tuned_at, optimizer = settings.scale_from_batch, settings.optimizer
    if tuned_at is None or optimizer.name != "adam" or not batch_is_given(settings):
        return None
    if settings.scale_rule == "linear":  # it leaves the betas as they are
        return None
    largest = int(tuned_at / (1 - min(optimizer.beta1, optimizer.beta2)))
    if settings.global_batch_size <= largest:
        return None
    return (
        f"scale_from_batch {tuned_at}: at global batch {settings.global_batch_size} a beta would be negative; choose a "
        f"global batch of at most {largest}"
    )


def _every_gpu_has_one_rank(settings: Settings) -> str | None:
    ranks, gpus = settings.launch.ranks_per_node, settings.hardware.accelerators_per_node
    if settings.launch.device != "cuda" or gpus == ranks:
        return None
    return (
        f"launch.ranks_per_node {ranks} differs from hardware.accelerators_per_node {gpus}; a CUDA system runs one "
        "rank per GPU; make them equal"
    )


def _apex_skips_no_steps(settings: Settings) -> str | None:
    if settings.optimizer.impl != "apex" or not settings.scales_loss:
        return None
    return (
        "fp16 gradients need to skip steps, which optimizer.impl apex can't do without stopping the device; set "
        "optimizer.impl to torch, or use bf16"
    )


def _kernels_fit_device_and_optimizer(settings: Settings) -> str | None:
    optimizer, device = settings.optimizer, settings.launch.device
    match optimizer.impl:
        case "triton":
            names: tuple[str, ...] = ("adam", "lamb")
        case "apex":
            names = ("lamb",)
        case _:
            return None
    if device == "cuda" and optimizer.name in names:
        return None
    return (
        f"optimizer.impl {optimizer.impl} has kernels for {' and '.join(names)} on cuda only, not for {optimizer.name} "
        f"on {device}; set it to torch"
    )


def _residuals_are_no_coarser_than_products(settings: Settings) -> str | None:
    compute = settings.precision.compute
    if settings.precision.residual != "bf16" or without_fp8(compute) == "bf16":
        return None
    return (
        f"precision.residual bf16 would round what precision.compute {compute} keeps; set "
        "precision.compute to bf16, or precision.residual to fp32"
    )


def _fp8_products_have_widths_of_16(settings: Settings) -> str | None:
    if settings.precision.compute != "fp8":
        return None
    for name, width in (
        ("hidden_size", settings.model.hidden_size),
        ("feed_forward_size", settings.model.feed_forward_size),
    ):
        if width % FP8_STEP:
            return (
                f"precision.compute fp8 multiplies matrices whose widths are multiples of {FP8_STEP}, but "
                f"model.{name} is {width}; choose a multiple, or set precision.compute to bf16"
            )
    return None


def _fine_tuning_has_no_fp8(settings: Settings) -> str | None:
    if settings.task != "squad" or settings.precision.compute != "fp8":
        return None
    return (
        "precision.compute fp8 is for pre-training only, because nothing checks it before fine-tuning; set it to bf16"
    )


def _finetuned_sequences_have_positions(settings: Settings) -> str | None:
    length, positions = settings.squad.max_seq_length, settings.model.max_positions
    if length is None or length <= positions:
        return None
    return f"squad.max_seq_length {length} is more than model.max_positions {positions}; set it to at most {positions}"


def _windows_hold_a_context(settings: Settings) -> str | None:
    windows = settings.squad.windows(settings.model.max_positions)
    if windows.max_query_length + 3 < windows.max_seq_length:
        return None
    return (
        f"squad.max_query_length {windows.max_query_length} and three special tokens leave no room for a context in "
        f"squad.max_seq_length {windows.max_seq_length}; set it to at most {windows.max_seq_length - 4}"
    )


def _buckets_have_a_size_or_a_number(settings: Settings) -> str | None:
    communication = settings.communication
    if communication.buckets is None or communication.bucket_mb is None:
        return None
    return (
        f"communication.buckets {communication.buckets} and communication.bucket_mb {communication.bucket_mb:g} both "
        "decide the number of gradient buckets; set one of them to null"
    )


def _sums_in_16_bits_keep_every_rank(settings: Settings) -> str | None:
    compression, ranks = settings.communication.compression, settings.world_size
    most = MOST_SUMMED_RANKS.get(compression, ranks)
    if ranks <= most:
        return None
    return (
        f"communication.compression {compression} sums over {ranks} ranks, but beyond {most}, what a rank adds to such "
        "a sum can vanish by rounding; set it to none"
    )


RULES: tuple[Rule, ...] = (
    *BATCH_RULES,
    _heads_divide_the_hidden_size,
    _mimetic_weights_have_an_even_width,
    _model_knows_the_datas_vocabulary,
    _warm_up_ends_within_the_run,
    _decay_lasts_beyond_its_start,
    _only_adam_is_scaled,
    _a_scale_rule_has_a_batch_to_scale_from,
    _scaled_betas_stay_positive,
    _every_gpu_has_one_rank,
    *allow_only(
        {"optimizer.impl": ("auto", "torch", "triton")},
        where=lambda settings: settings.optimizer.sharded,
        because="needs whole gradients, but optimizer.sharded leaves each rank only a slice of them",
        instead="leave optimizer.sharded out",
    ),
    _apex_skips_no_steps,
    _kernels_fit_device_and_optimizer,
    _residuals_are_no_coarser_than_products,
    _fp8_products_have_widths_of_16,
    *allow_only(
        {"communication.compression": ("none", "bf16")},
        where=lambda settings: settings.precision.compute == "fp8",
        because="scales the loss, and fp8's own scales can't follow when that scale changes",
        instead="set precision.compute to bf16",
    ),
    _buckets_have_a_size_or_a_number,
    _sums_in_16_bits_keep_every_rank,
    *allow_only(
        {
            "hardware.division": ("open",),
            "scale_from_batch": (None,),  # it scales a number of steps, and fine-tuning knows its own later
        },
        where=lambda settings: settings.task == "squad",
        because="is for pre-training only",
        instead="set task to pretrain",
    ),
    _fine_tuning_has_no_fp8,
    _finetuned_sequences_have_positions,
    _windows_hold_a_context,
    *GRAPH_RULES,
    *LAYOUT_RULES,
    *CLOSED_RULES,
)
