"""What MLPerf's closed division fixes; a closed system that deviates is refused with the name of the rule.

Sources: training_rules.adoc of mlcommons/training_policies, sections on divisions, hyper-parameters and optimizers,
random numbers, data traversal order, and quality; values are those of the reference (mlcommons/training, BERT). Free
are batch, rate, steps, warm-up, betas, epsilon and weight decay of LAMB, accumulation, number formats, and how data is
sharded, dealt and packed.
"""

from collections.abc import Iterator

from bertbench.config.rule import Rule, rule
from bertbench.config.settings import Settings, mlperf_evaluation_interval

TARGET = 0.72
EVALUATION_SAMPLES = 10_000
MAX_PREDICTIONS = 76
CHECKPOINT = "model.ckpt-28252"
"""Prefix of MLCommons' files; a weights file names the checkpoint that it was imported from."""


def _fixed(name: str, setting: str, *allowed: object, instead: str = "") -> Rule:
    """Return the rule `name`: a setting has one of the allowed values; `instead` says how to get one."""
    section, key = setting.split(".")

    def find(settings: Settings) -> Iterator[str]:
        if settings.hardware.division == "closed":
            value = getattr(getattr(settings, section), key)
            if value not in allowed:
                yield _refusal(name, setting, value, instead or " or ".join(map(str, allowed)))

    return Rule(find, (setting, "hardware.division"))


def _refusal(name: str, setting: str, value: object, instead: str) -> str:
    shown = "null" if value is None else value
    return (
        f"{setting} {shown} is not allowed in the closed division; use {instead} (rule {name}), or set "
        "hardware.division to open"
    )


@rule("model.checkpoint", "hardware.division")
def _checkpoint(settings: Settings) -> Iterator[str]:
    if settings.hardware.division == "closed" and settings.model.checkpoint is None:
        yield _refusal(
            "closed-checkpoint", "model.checkpoint", None, "MLPerf's phase-1 checkpoint (docs/checkpoint.md imports it)"
        )


@rule("schedule.decay_steps", "schedule.max_steps", "hardware.division")
def _decay(settings: Settings) -> Iterator[str]:
    schedule = settings.schedule
    if settings.hardware.division == "closed" and schedule.decay_steps not in (None, schedule.max_steps):
        instead = f"schedule.max_steps {schedule.max_steps}"
        yield _refusal("closed-decay", "schedule.decay_steps", schedule.decay_steps, instead)


@rule("evaluation.interval_samples", "data.global_batch_size", "data.local_batch", "hardware.division")
def _cadence(settings: Settings) -> Iterator[str]:
    interval = settings.evaluation.interval_samples
    if settings.hardware.division != "closed" or interval is None:
        return
    expected = mlperf_evaluation_interval(settings.global_batch_size)
    if interval != expected:
        yield _refusal("closed-cadence", "evaluation.interval_samples", interval, f"{expected}, or leave it out")


@rule("data.recipe", "hardware.division")
def _recipe(settings: Settings) -> Iterator[str]:
    recipe = settings.data.recipe
    if settings.hardware.division != "closed" or recipe is None:
        return
    for name, rule_name, expected in (
        ("dupe_factor", "closed-samples", 10),
        ("short_seq_prob", "closed-samples", 0.1),
        ("masked_lm_prob", "closed-samples", 0.15),
        ("max_predictions_per_seq", "closed-predictions", MAX_PREDICTIONS),
        ("cut_to_target", "closed-samples", False),
        ("held_out_samples", "closed-evaluation-set", EVALUATION_SAMPLES),
    ):
        if (value := getattr(recipe, name)) != expected:
            yield _refusal(rule_name, f"data.recipe.{name}", value, str(expected))


# Orders that are random overall, dealt or packed as one likes. The others draw a step's samples by their lengths.
_RANDOM_ORDERS = ("none", "planned", "presort", "global_exchange", "packed")

CLOSED_RULES = (
    _fixed("closed-model", "model.hidden_size", 1024),
    _fixed("closed-model", "model.layers", 24),
    _fixed("closed-model", "model.attention_heads", 16),
    _fixed("closed-model", "model.feed_forward_size", 4096),
    _fixed("closed-model", "model.vocab_size", 30522, 30528),  # a multiple of 8 is faster; the rest is never an input
    _fixed("closed-sequence", "model.max_positions", 512),
    _fixed("closed-dropout", "model.hidden_dropout", 0.1),
    _fixed("closed-dropout", "model.attention_dropout", 0.1),
    _checkpoint,
    _recipe,
    _fixed("closed-data-order", "data.balance", *_RANDOM_ORDERS),
    _fixed("closed-loss", "loss.normalize", "rank"),
    _fixed("closed-optimizer", "optimizer.name", "lamb"),
    _fixed("closed-average", "optimizer.ema_decay", 0.0, instead="0"),
    _fixed("closed-decay", "schedule.end_learning_rate", 0.0, instead="0"),
    _decay,
    _fixed("closed-clip", "clip.mode", "after", "before"),
    _fixed("closed-clip", "clip.max_norm", 1.0),
    _fixed("closed-compression", "communication.compression", "none", "fp16", "bf16"),  # formats that may be used
    _fixed("closed-sync", "sync.method", "every_step"),
    _fixed("closed-target", "evaluation.target", TARGET),
    _cadence,
)
