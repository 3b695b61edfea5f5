"""Define what MLPerf's closed division fixes; a closed system that deviates is refused with the name of the rule.

Sources: training_rules.adoc of mlcommons/training_policies, sections on divisions, hyper-parameters and optimizers,
random numbers, data traversal order, and quality; values are those of the reference (mlcommons/training, BERT). A
closed system may choose its batch, LAMB's learning rate, steps, warm-up, betas, epsilon and weight decay, accumulation,
and how data is sharded, assigned to ranks and packed. It may also choose number formats, because all those of
`precision` are pre-approved (section on numerical formats; fp8 since version 2.0).
"""

from collections.abc import Iterator

from bertbench.common.evaluation import mlperf_evaluation_interval
from bertbench.config.rules import AllowedValues, Rule
from bertbench.config.system import System

TARGET = 0.72
EVALUATION_SAMPLES = 10_000
MAX_PREDICTIONS = 76
CHECKPOINT = "model.ckpt-28252"
"""Prefix of MLCommons' files; a weights file names the checkpoint that it was imported from."""


# Methods with a random order overall; how they assign and pack samples is free. Other methods choose the samples of a
# step by their lengths, and packed rows have no equal counts, which closed-loss needs.
_RANDOM_ORDERS = ("none", "planned", "presort", "global_exchange")

_FIXED: dict[str, tuple[object, ...]] = {
    "model.hidden_size": ("closed-model", 1024),
    "model.layers": ("closed-model", 24),
    "model.attention_heads": ("closed-model", 16),
    "model.feed_forward_size": ("closed-model", 4096),
    "model.vocab_size": ("closed-model", 30522, 30528),  # a multiple of 8 is faster; the added rows are never used
    "model.max_positions": ("closed-sequence", 512),
    "model.hidden_dropout": ("closed-dropout", 0.1),
    "model.attention_dropout": ("closed-dropout", 0.1),
    # without a recipe, the data is MLCommons' own
    "data.recipe.dupe_factor": ("closed-samples", 10),
    "data.recipe.short_seq_prob": ("closed-samples", 0.1),
    "data.recipe.masked_lm_prob": ("closed-samples", 0.15),
    "data.recipe.max_predictions_per_seq": ("closed-predictions", MAX_PREDICTIONS),
    "data.recipe.cut_to_target": ("closed-samples", False),
    "data.recipe.held_out_samples": ("closed-evaluation-set", EVALUATION_SAMPLES),
    "data.balance": ("closed-data-order", *_RANDOM_ORDERS),
    "data.strata_quotas": ("closed-data-order", None),
    "loss.normalize": ("closed-loss", "rank"),
    "optimizer.name": ("closed-optimizer", "lamb"),
    "optimizer.ema_decay": ("closed-average", 0.0),
    "schedule.end_learning_rate": ("closed-decay", 0.0),
    "schedule.decay_from": ("closed-decay", "step_0"),
    "clip.mode": ("closed-clip", "after", "before"),
    "clip.max_norm": ("closed-clip", 1.0),
    "clip.parts": ("closed-clip", "sum"),
    "evaluation.target": ("closed-target", TARGET),
}
"""The rule that fixes a setting, and the values that it allows."""


def _is_closed(settings: System) -> bool:
    return settings.hardware.division == "closed"


def _checkpoint_is_mlperfs(settings: System) -> str | None:
    if not _is_closed(settings) or settings.model.checkpoint is not None:
        return None
    return (
        "model.checkpoint null is not allowed in the closed division (rule closed-checkpoint); set it to MLPerf's "
        "phase-1 checkpoint (docs/data.md imports it), or set hardware.division to open"
    )


def _decay_lasts_all_steps(settings: System) -> str | None:
    schedule = settings.schedule
    if not _is_closed(settings) or schedule.decay_steps in (None, schedule.max_steps):
        return None
    return (
        f"schedule.decay_steps {schedule.decay_steps} is not allowed in the closed division (rule closed-decay); "
        f"set it to schedule.max_steps {schedule.max_steps}, or set hardware.division to open"
    )


def _evaluations_come_at_mlperfs_interval(settings: System) -> str | None:
    if not _is_closed(settings):
        return None
    expected = mlperf_evaluation_interval(settings.global_batch_size)
    if settings.evaluation_interval == expected:
        return None
    return (
        f"evaluation.interval_samples {settings.evaluation_interval} is not allowed in the closed division (rule "
        f"closed-cadence); set it to {expected} or leave it out, or set hardware.division to open"
    )


def _fixed_settings() -> Iterator[Rule]:
    for setting, (name, *allowed) in _FIXED.items():
        yield AllowedValues(
            setting,
            allowed,
            applies=_is_closed,
            because=f"is not allowed in the closed division (rule {name})",
            instead="set hardware.division to open",
        )


CLOSED_RULES: tuple[Rule, ...] = (
    *_fixed_settings(),
    _checkpoint_is_mlperfs,
    _decay_lasts_all_steps,
    _evaluations_come_at_mlperfs_interval,
)
