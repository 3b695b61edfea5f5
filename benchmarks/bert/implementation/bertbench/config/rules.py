"""Define what a rule between settings is, and the rules about a model, its arithmetic, its schedule and its step.

A rule says what doesn't go together. It says nothing if its numbers follow from something that another rule refuses.
layout_rules.py has the rules about ranks and their batches, and closed.py those of MLPerf's closed division.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from bertbench.common.section import UnsettledError
from bertbench.config.optimizer import MOST_SUMMED_RANKS
from bertbench.config.system import System, scaled_to_its_batch
from bertbench.model.options import FP8_STEP, without_fp8

UNSCALED = ("fp32", "bf16", "auto")
"""Formats without scales. fp16 has a scale of the loss and fp8 has scales of tensors, which change from step to step.
"""

Condition = Callable[[System], bool]

Rule = Callable[[System], str | None]
"""Returns what is wrong between settings, with the remedy; None if nothing is. The function's name states the rule."""


@dataclass(frozen=True)
class AllowedValues:
    """The rule that `setting` has one of `values` where `applies` is true."""

    setting: str
    """Its dotted name."""
    values: Sequence[object]
    applies: Condition
    because: str
    """Why another value is refused there."""
    instead: str
    """What to do instead, in order to keep another value."""

    def __call__(self, settings: System) -> str | None:
        """Return why the setting's value is refused; None if it isn't."""
        if not self.applies(settings):
            return None
        *sections, key = self.setting.split(".")
        section: Any = settings
        for name in sections:
            section = getattr(section, name)
        if section is None:  # the section is left out
            return None
        value = getattr(section, key)
        if value in self.values:
            return None
        choices = " or ".join(map(_shown, self.values))
        return f"{self.setting} {_shown(value)} {self.because}; set it to {choices}, or {self.instead}"


def allow_only(
    allowed: Mapping[str, Sequence[object]], where: Condition, because: str, instead: str
) -> tuple[Rule, ...]:
    """Return a rule for each setting of `allowed`: it has one of these values where the condition is true.

    Others are refused `because` of what is true there, and `instead` says how to keep them.
    """
    return tuple(AllowedValues(setting, values, where, because, instead) for setting, values in allowed.items())


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def broken_rules(rules: Iterable[Rule], settings: System) -> Iterator[str]:
    """Yield what any of the rules finds wrong; all rules run, so that a file with five mistakes gets five messages.

    A rule says nothing where it reads a setting that a system for fine-tuning leaves out.
    """
    for rule in rules:
        with suppress(UnsettledError):
            problem = rule(settings)
            if problem is not None:
                yield problem


def _heads_divide_the_hidden_size(settings: System) -> str | None:
    hidden, heads = settings.model.hidden_size, settings.model.attention_heads
    if hidden % heads == 0:
        return None
    return f"model.hidden_size {hidden} is not a multiple of model.attention_heads {heads}; choose a multiple"


def _mimetic_weights_have_an_even_width(settings: System) -> str | None:
    hidden = settings.model.hidden_size
    if settings.model.initial_weights != "mimetic" or hidden % 2 == 0:
        return None
    return (
        f"model.initial_weights mimetic pairs sines with cosines, but model.hidden_size {hidden} is odd; choose an "
        "even one, or random"
    )


def _model_knows_the_datas_vocabulary(settings: System) -> str | None:
    recipe = settings.data.recipe
    if recipe is None or recipe.vocab_size <= settings.model.vocab_size:
        return None
    return (
        f"data.recipe.vocab_size {recipe.vocab_size} is larger than model.vocab_size {settings.model.vocab_size}; "
        "raise model.vocab_size to at least that"
    )


def _warm_up_starts_by_the_first_step(settings: System) -> str | None:
    schedule = settings.schedule
    if schedule.start_warmup_step <= schedule.first_step:
        return None
    return (
        f"schedule.start_warmup_step {schedule.start_warmup_step} would give the steps before it a negative learning "
        f"rate; set it to at most {schedule.first_step}, the number of the first step (schedule.first_step)"
    )


def _warm_up_ends_within_the_run(settings: System) -> str | None:
    schedule = settings.schedule
    most = schedule.max_steps - schedule.start_warmup_step
    if schedule.warmup_steps <= most:
        return None
    return (
        f"schedule.warmup_steps {schedule.warmup_steps} would end after the run (schedule.max_steps "
        f"{schedule.max_steps}); set schedule.warmup_steps to at most {most}"
    )


def _decay_lasts_beyond_its_start(settings: System) -> str | None:
    schedule = settings.schedule
    decay_steps = schedule.decay_steps or schedule.max_steps
    if schedule.decay_from == "step_0" or schedule.warmup_steps < decay_steps:
        return None
    return (
        f"schedule.decay_from warmup_steps: the decay would begin at step {schedule.warmup_steps} and end at step "
        f"{decay_steps}; raise schedule.decay_steps above {schedule.warmup_steps}, or set schedule.decay_from to step_0"
    )


def _only_adam_is_scaled(settings: System) -> str | None:
    if settings.scale_from_batch is None or settings.optimizer.name == "adam":
        return None
    return "scale_from_batch: the scaling rule holds for adam only; remove it, or use adam"


def _a_scale_rule_has_a_batch_to_scale_from(settings: System) -> str | None:
    if settings.scale_rule is None or settings.scale_from_batch is not None:
        return None
    return (
        f"scale_rule {settings.scale_rule}: there is nothing to scale without scale_from_batch; set that to the batch "
        "that optimizer and schedule were tuned at, or remove scale_rule"
    )


def _scaled_betas_stay_positive(settings: System) -> str | None:
    tuned_at, optimizer = settings.scale_from_batch, settings.optimizer
    if tuned_at is None or optimizer.name != "adam" or not settings.data.gives_one_batch:
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


def _a_scaled_schedule_has_steps(settings: System) -> str | None:
    tuned_at, schedule = settings.scale_from_batch, settings.schedule
    if tuned_at is None or not settings.data.gives_one_batch:
        return None
    for name, steps in (("max_steps", schedule.max_steps), ("decay_steps", schedule.decay_steps)):
        if steps is not None and round(steps * tuned_at / settings.global_batch_size) < 1:
            return (
                f"scale_from_batch {tuned_at}: at global batch {settings.global_batch_size}, schedule.{name} {steps} "
                "would become 0; raise it, or choose a smaller global batch"
            )
    return None


def _a_scaled_schedule_is_possible(settings: System) -> str | None:
    tuned_at = settings.scale_from_batch
    if tuned_at is None or not settings.data.gives_one_batch or _a_scaled_schedule_has_steps(settings):
        return None
    scaled = scaled_to_its_batch(settings)
    for rule in _SCHEDULE_RULES:
        problem = rule(scaled)
        if problem is not None and rule(settings) is None:  # rounding made it impossible
            return (
                f"scale_from_batch {tuned_at}: with steps scaled to global batch {settings.global_batch_size} and "
                f"rounded, {problem} (numbers of scaled steps)"
            )
    return None


def _apex_skips_no_steps(settings: System) -> str | None:
    if settings.optimizer.impl != "apex" or not settings.scales_loss:
        return None
    return (
        "fp16 gradients need to skip steps, which optimizer.impl apex can't do without stopping the device; set "
        "optimizer.impl to torch, or use bf16"
    )


def _kernels_fit_device_and_optimizer(settings: System) -> str | None:
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


def _residuals_are_no_coarser_than_products(settings: System) -> str | None:
    compute = settings.precision.compute
    if settings.precision.residual != "bf16" or without_fp8(compute) == "bf16":
        return None
    return (
        f"precision.residual bf16 would round what precision.compute {compute} keeps; set "
        "precision.compute to bf16, or precision.residual to fp32"
    )


def _fp8_products_have_widths_of_16(settings: System) -> str | None:
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


def _fine_tuning_has_no_fp8(settings: System) -> str | None:
    if settings.task != "squad" or settings.precision.compute != "fp8":
        return None
    return (
        "precision.compute fp8 is for pre-training only, because nothing checks it before fine-tuning; set it to bf16"
    )


def _finetuned_sequences_have_positions(settings: System) -> str | None:
    length, positions = settings.squad.max_seq_length, settings.model.max_positions
    if length is None or length <= positions:
        return None
    return f"squad.max_seq_length {length} is more than model.max_positions {positions}; set it to at most {positions}"


def _windows_hold_a_context(settings: System) -> str | None:
    windows = settings.squad.windows(settings.model.max_positions)
    if windows.max_query_length + 3 < windows.max_seq_length:
        return None
    return (
        f"squad.max_query_length {windows.max_query_length} and three special tokens leave no room for a context in "
        f"squad.max_seq_length {windows.max_seq_length}; set it to at most {windows.max_seq_length - 4}"
    )


def _buckets_have_a_size_or_a_number(settings: System) -> str | None:
    communication = settings.communication
    if communication.buckets is None or communication.bucket_mb is None:
        return None
    return (
        f"communication.buckets {communication.buckets} and communication.bucket_mb {communication.bucket_mb:g} both "
        "decide the number of gradient buckets; set one of them to null"
    )


def _sums_in_16_bits_keep_every_rank(settings: System) -> str | None:
    compression, ranks = settings.communication.compression, settings.world_size
    most = MOST_SUMMED_RANKS.get(compression, ranks)
    if ranks <= most:
        return None
    return (
        f"communication.compression {compression} sums over {ranks} ranks, but beyond {most}, what a rank adds to such "
        "a sum can vanish by rounding; set it to none"
    )


def _replays(settings: System) -> bool:
    return settings.compute.compile == "graphs"


def _replayed_models_are_whole(settings: System) -> str | None:
    if not _replays(settings) or not settings.parallel.splits:
        return None
    return "compute.compile graphs is for whole models; leave parallel out, or set compute.compile to default"


def _replayed_attention_has_a_fixed_size(settings: System) -> str | None:
    on_gpu = settings.launch.device == "cuda"
    if not (_replays(settings) and on_gpu and settings.precision.compute == "fp32"):
        return None
    return (
        "compute.compile graphs on cuda needs attention of a fixed size, which torch's flash kernel has in "
        "half precision only; set precision.compute to bf16, or compute.compile to default"
    )


def _replayed_parts_are_clipped_together(settings: System) -> str | None:
    if not _replays(settings) or settings.clipped_parts == 1:
        return None
    return (
        "compute.compile graphs replays parts of a batch that add to one gradient, but clip.parts each clips every "
        "part before it is added; set clip.parts to sum, or compute.compile to default"
    )


GRAPH_RULES: tuple[Rule, ...] = (
    *allow_only(
        {
            "optimizer.name": ("lamb", "adam"),
            "optimizer.ema_decay": (0.0,),  # it counts steps on the host, as apex does
            "optimizer.impl": ("auto", "torch", "triton"),
            "communication.compression": ("none", "bf16"),  # fp16 needs a loss scale
            "precision.compute": (*UNSCALED, "fp8"),  # fp16 may skip steps
        },
        where=_replays,
        because="can't be replayed by compute.compile graphs",
        instead="compute.compile to default",
    ),
    _replayed_models_are_whole,
    _replayed_parts_are_clipped_together,
    _replayed_attention_has_a_fixed_size,
)

_SCHEDULE_RULES: tuple[Rule, ...] = (
    _warm_up_starts_by_the_first_step,
    _warm_up_ends_within_the_run,
    _decay_lasts_beyond_its_start,
)
MODEL_AND_STEP_RULES: tuple[Rule, ...] = (
    _heads_divide_the_hidden_size,
    _mimetic_weights_have_an_even_width,
    _model_knows_the_datas_vocabulary,
    *_SCHEDULE_RULES,
    _only_adam_is_scaled,
    _a_scale_rule_has_a_batch_to_scale_from,
    _scaled_betas_stay_positive,
    _a_scaled_schedule_has_steps,
    _a_scaled_schedule_is_possible,
    *allow_only(
        {"optimizer.impl": ("auto", "torch", "triton")},
        where=lambda settings: settings.optimizer.sharded,
        because="needs whole gradients, but optimizer.sharded leaves each rank only a slice of them",
        instead="leave optimizer.sharded out",
    ),
    *allow_only(
        {"optimizer.name": ("adam", "lamb")},
        where=lambda settings: settings.optimizer.sharded,
        because="updates whole matrices, but optimizer.sharded leaves each rank only a slice of them",
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
)
