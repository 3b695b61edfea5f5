"""What MLPerf's closed division fixes; a closed system that deviates is refused with the name of the rule.

Sources: training_rules.adoc of mlcommons/training_policies, sections on divisions, hyper-parameters and optimizers,
random numbers, data traversal order, and quality; values are those of the reference (mlcommons/training, BERT). Free
are batch, rate, steps, warm-up, betas, epsilon and weight decay of LAMB, accumulation, number formats, and how data is
sharded, dealt and packed.
"""

from functools import reduce

from bertbench.config.settings import Rule, Settings, mlperf_evaluation_interval

TARGET = 0.72
EVALUATION_SAMPLES = 10_000
MAX_PREDICTIONS = 76
CHECKPOINT = "model.ckpt-28252"
"""Prefix of MLCommons' files; a weights file names the checkpoint that it was imported from."""


def _fixed(name: str, setting: str, *allowed: object, instead: str = "") -> Rule:
    """Return the rule `name`: a setting has one of the allowed values; `instead` says how to get one."""
    *sections, key = setting.split(".")

    def find(settings: Settings) -> object:
        place = reduce(getattr, sections, settings)
        # without a recipe, the data is MLCommons' own
        return place is not None and _deviation(settings, name, setting, getattr(place, key), allowed, instead)

    return find


def _deviation(
    settings: Settings, name: str, setting: str, value: object, allowed: tuple[object, ...], instead: str = ""
) -> object:
    return settings.hardware.division == "closed" and value not in allowed and (
        f"{setting} {'null' if value is None else value} is not allowed in the closed division; use "
        f"{instead or ' or '.join(map(str, allowed))} (rule {name}), or set hardware.division to open"
    )  # fmt: skip


# Orders that are random overall, dealt or packed as one likes. The others draw a step's samples by their lengths.
_RANDOM_ORDERS = ("none", "planned", "presort", "global_exchange", "packed")

CLOSED_RULES: tuple[Rule, ...] = (
    _fixed("closed-model", "model.hidden_size", 1024),
    _fixed("closed-model", "model.layers", 24),
    _fixed("closed-model", "model.attention_heads", 16),
    _fixed("closed-model", "model.feed_forward_size", 4096),
    _fixed("closed-model", "model.vocab_size", 30522, 30528),  # a multiple of 8 is faster; the rest is never an input
    _fixed("closed-sequence", "model.max_positions", 512),
    _fixed("closed-dropout", "model.hidden_dropout", 0.1),
    _fixed("closed-dropout", "model.attention_dropout", 0.1),
    lambda s: (
        s.model.checkpoint is None
        and _deviation(
            s,
            "closed-checkpoint",
            "model.checkpoint",
            None,
            (),
            "MLPerf's phase-1 checkpoint (docs/checkpoint.md imports it)",
        )
    ),
    _fixed("closed-samples", "data.recipe.dupe_factor", 10),
    _fixed("closed-samples", "data.recipe.short_seq_prob", 0.1),
    _fixed("closed-samples", "data.recipe.masked_lm_prob", 0.15),
    _fixed("closed-predictions", "data.recipe.max_predictions_per_seq", MAX_PREDICTIONS),
    _fixed("closed-samples", "data.recipe.cut_to_target", False),
    _fixed("closed-evaluation-set", "data.recipe.held_out_samples", EVALUATION_SAMPLES),
    _fixed("closed-data-order", "data.balance", *_RANDOM_ORDERS),
    _fixed("closed-loss", "loss.normalize", "rank"),
    _fixed("closed-optimizer", "optimizer.name", "lamb"),
    _fixed("closed-average", "optimizer.ema_decay", 0.0, instead="0"),
    _fixed("closed-decay", "schedule.end_learning_rate", 0.0, instead="0"),
    lambda s: _deviation(
        s,
        "closed-decay",
        "schedule.decay_steps",
        s.schedule.decay_steps,
        (None, s.schedule.max_steps),
        f"schedule.max_steps {s.schedule.max_steps}",
    ),
    _fixed("closed-clip", "clip.mode", "after", "before"),
    _fixed("closed-clip", "clip.max_norm", 1.0),
    _fixed("closed-compression", "communication.compression", "none", "fp16", "bf16"),  # formats that may be used
    _fixed("closed-sync", "sync.method", "every_step"),
    _fixed("closed-target", "evaluation.target", TARGET),
    lambda s: _deviation(
        s,
        "closed-cadence",
        "evaluation.interval_samples",
        s.evaluation.interval_samples,
        (None, expected := mlperf_evaluation_interval(s.global_batch_size)),
        f"{expected}, or leave it out",
    ),
)
