"""Ways to break a sound closed log: its values, its metadata, and other changes; the judge's rule, line and verdict."""

from typing import Any, NamedTuple

from compliance.rules import RULES
from tests.compliance.logs import OWN, Mutation, at
from tests.compliance.mutations import (
    TEN_MINUTES,
    accuracies,
    again,
    both,
    epoch_nums,
    evaluated_only,
    every,
    from_key,
    going_on,
    later,
    moved,
    none_reaching,
    reaching_after_run_stop,
    renamed,
    scaled,
    setting,
    stopped_after,
    telling,
    timed,
    two_runs,
    without,
)


class Broken(NamedTuple):
    """A key's nth record is at fault, or no line; by its rule, the log fails or passes if `verdict` is not given."""

    name: str
    rule: str
    key: str | None
    change: Mutation
    nth: int = 0
    verdict: str | None = None

    @property
    def expected(self) -> str:
        (severity,) = (rule.severity for rule in RULES if rule.id == self.rule)
        return self.verdict or ("fail" if severity == "error" else "pass")


CLOSED_KEYS = (
    "opt_base_learning_rate", "opt_lamb_epsilon", "opt_learning_rate_training_steps", "opt_learning_rate_warmup_steps",
    "num_warmup_steps", "start_warmup_step", "opt_lamb_beta_1", "opt_lamb_beta_2", "opt_lamb_weight_decay_rate",
    "gradient_accumulation_steps",
)  # fmt: skip
REQUIRED_KEYS = (
    *CLOSED_KEYS, "global_batch_size", "cache_clear", "init_start", "run_start", "run_stop", "train_samples",
    "eval_samples", "submission_division", "submission_benchmark",
)  # fmt: skip
_NAN, _INFINITE = float("nan"), float("inf")
_OTHER_MODELS = [{**OWN["bertbench_model"], name: size} for name, size in (("layers", 2), ("vocab_size", 40_000))]
# Values of the last record of a key, by the rule that finds them.
VALUES: list[tuple[str, str, list[Any]]] = [
    *(("hyperparameter", key, [_NAN, "0.1", None, _INFINITE, -20_000_000.5]) for key in CLOSED_KEYS),
    ("hyperparameter", "opt_base_learning_rate", [30.0]),
    ("batch-size", "global_batch_size", [0, [448], True, 10**400, 1, 7, 65_537, _NAN, "0.1", None]),
    ("optimizer", "opt_name", ["adam", "adam_lambda"]),
    ("division", "submission_division", ["free", "Closed", "../training_4.1.0/closed", ["closed"]]),
    ("benchmark", "submission_benchmark", ["gpt9", "common", "bert/../../training_5.0.0/closed_bert", ["bert"]]),
    ("names", "submission_org", ["SUBMISSION_ORG_PLACEHOLDER"]),
    ("seed-value", "seed", ["random", -1]),
    ("cache-clear", "cache_clear", [False, "False"]),
    ("eval-samples", "eval_samples", [1000, [10_000, 10_000]]),
    ("samples", "train_samples", ["all", 0, 150_080, 448 * 9400, 90_000_000]),
    ("accuracy", "eval_accuracy", ["0.73", None, _NAN, 72.85, 1e305, -0.1, [0.73]]),
    ("target", "eval_accuracy", [0.7199]),
    ("noise", "eval_accuracy", [0.7212121212121212, 0.7222222222222222, 0.723123123123123, 0.721234567891]),
    *(("reference-value", key, values) for key, values in {
        "max_sequence_length": [128],
        "opt_end_learning_rate": [1e-5],
        "opt_gradient_clip_norm": [5],
        "opt_lamb_learning_rate_decay_poly_power": [2],
        "max_predictions_per_seq": [20],
        "bertbench_clip_mode": ["none", "bucket", ["before"]],
        "bertbench_compression": ["powersgd"],
        "bertbench_sync_method": ["diloco", None],
        "bertbench_loss_normalize": ["global"],
        "bertbench_ema_decay": [0.99],
        "bertbench_hidden_dropout": [0],
        "bertbench_attention_dropout": ["none"],
        "bertbench_checkpoint": [False, 1],
        "bertbench_target": [0.5],
        "bertbench_balance": ["stratified"],
        "bertbench_model": [*_OTHER_MODELS, "BERT-large"],
    }.items()),
]  # fmt: skip
FIELDS: list[tuple[str, str, str, list[Any]]] = [
    ("run-success", "run_stop", "status", ["aborted", None]),
    ("epoch-num", "eval_accuracy", "epoch_num", ["many", _NAN, None, -1]),
    ("official", "block_start", "epoch_count", [0]),
]
TABLE = [
    *(Broken(f"{key} missing", "official", None, without(key)) for key in REQUIRED_KEYS),
    *(Broken(f"{key} missing", "names", None, without(key)) for key in ("submission_org", "submission_platform")),
    *(Broken(f"{key} {value}"[:60], rule, key, setting(key, value, -1), -1)
      for rule, key, values in VALUES for value in values),
    *(Broken(f"{field} {value}", rule, key, telling(key, -1, **{field: value}), -1)
      for rule, key, field, values in FIELDS for value in values),
    Broken("init_stop missing", "official", "run_start", without("init_stop")),
    Broken("no seed", "seed", None, without("seed")),
    Broken("more parts than samples", "batch-size", "gradient_accumulation_steps",
           setting("gradient_accumulation_steps", 449, -1), verdict="pass"),
    Broken("a key of ours taken out", "reference-value", None, without("bertbench_compression"),
           verdict="pass"),
    Broken("training steps 0", "hyperparameter", "opt_learning_rate_training_steps",
           setting("opt_learning_rate_training_steps", 0), verdict="pass"),
    Broken("too few steps", "samples", "eval_accuracy",
           setting("opt_learning_rate_training_steps", 900), -1),
    Broken("another batch later", "repeated", "global_batch_size", again("global_batch_size", value=64), 1,
           verdict="fail"),
    Broken("two divisions", "repeated", "submission_division",
           again("submission_division", value="open"), 1, "fail"),
    Broken("another benchmark", "official", None, setting("submission_benchmark", "retinanet")),
    Broken("resumed", "resumed", "resumed", going_on),
    Broken("a resumption left out", "resumed", "resumed", lambda records: going_on(records, 2),
           verdict="fail"),
    Broken("caches cleared on the clock", "cache-clear", "cache_clear", moved("cache_clear", "block_stop")),
    Broken("stopped before it started", "run-order", "run_stop", later("run_stop", -TEN_MINUTES)),
    Broken("stopped early, once more", "run-once", "run_stop", again("run_stop", -100_000), 1),
    Broken("started twice at once", "run-once", "run_start", again("run_start"), 1, verdict="pass"),
    Broken("two runs in a file", "run-once", "run_start", two_runs, 1),
    Broken("half an hour of initialisation", "init-time", "init_stop",
           later("init_start", -1_801_000)),
    Broken("init_stop long after run_start", "run-order", "run_start", later("init_stop", 60_000), verdict="pass"),
    Broken("training before the clock", "official", "block_start", moved("block_start", "init_stop")),
    Broken("training before the clock by time", "on-clock", "block_start",
           later("block_start", -TEN_MINUTES), verdict="fail"),
    Broken("a block that ends after the run", "on-clock", "block_stop", later("block_stop", TEN_MINUTES)),
    *(Broken(f"{key} without {other}", "intervals", key, without(other, 3), 3) for key, other in (
        ("block_start", "block_stop"), ("block_stop", "block_start"), ("eval_start", "eval_stop"),
        ("eval_start", "eval_accuracy"),
    )),
    Broken("an evaluation that stops before it starts", "intervals", "eval_stop",
           later("eval_stop", -5_000, 3), 3),
    Broken("evaluations that take no time", "intervals", "eval_stop",
           every("eval_stop", lambda _, one: one.update(time_ms=one["time_ms"] - 900))),
    Broken("a block lost", "blocks-contiguous", "block_start",
           both(without("block_start", 3), without("block_stop", 3)), 3),
    Broken("target after the run", "target-on-clock", "eval_accuracy", reaching_after_run_stop, -1),
    Broken("target before the run", "target-on-clock", "eval_accuracy",
           moved("eval_accuracy", "run_start", -1)),
    Broken("target after the run by time", "target-on-clock", "eval_accuracy",
           later("eval_accuracy", TEN_MINUTES, -1), -1),
    Broken("epoch_num constant", "epoch-num", "eval_accuracy", epoch_nums(lambda _: 150_080), 1, verdict="pass"),
    Broken("epoch_num steps back", "epoch-num", "eval_accuracy",
           telling("eval_accuracy", 5, epoch_num=150_080), 5),
    Broken("epoch_num repeated", "epoch-num", "eval_accuracy",
           telling("eval_accuracy", 5, epoch_num=5 * 150_080), 5, verdict="pass"),
    Broken("measured before the one before", "epoch-num", "eval_accuracy",
           later("eval_accuracy", -15_000, 5), 5, verdict="pass"),
    Broken("every second evaluation", "cadence", "eval_accuracy", evaluated_only(*range(2, 15, 2))),
    Broken("evaluated twice as often", "cadence", "eval_accuracy",
           epoch_nums(lambda index: (index + 1) * 168 * 448), verdict="fail"),
    Broken("first evaluation left out", "cadence", "eval_accuracy", without("eval_accuracy")),
    Broken("time as text", "record", "run_stop", timed("run_stop", "noon")),
    Broken("time beyond floats", "record", "run_stop", timed("run_stop", 10**400)),
    Broken("time NaN", "time", "run_stop", timed("run_stop", float("nan")), verdict="fail"),
    Broken("time negative", "time", "eval_start", timed("eval_start", -5)),
    # the clock
    Broken("run_stop 0.4 s before the evaluation at the target", "target-on-clock", "eval_accuracy",
           lambda records: timed("run_stop", records[at(records, "eval_accuracy", -1)]["time_ms"] - 400)(records), -1),
    Broken("run_start 0.4 s after the first block", "on-clock", "block_start",
           lambda records: timed("run_start", records[at(records, "block_start")]["time_ms"] + 400)(records),
           verdict="fail"),
    Broken("an hour back", "intervals", "block_start", from_key("block_start", -3_600_000, 5), 5, "fail"),
    Broken("hours from init_stop to run_start", "init-time", "init_stop",
           from_key("run_start", 2 * 3_600_000)),
    Broken("times in seconds", "time", "run_start", scaled(1e-3), verdict="fail"),
    Broken("a hundred times as fast", "rate", "run_stop", scaled(0.01, since_start=True)),
    Broken("seconds cut out", "pace", "eval_accuracy", from_key("block_stop", -4_500, 6), 6),
    Broken("seconds cut out of the first interval", "pace", "eval_accuracy", from_key("block_stop", -4_500)),
    Broken("seconds cut out of the last interval", "pace", "eval_accuracy",
           from_key("block_stop", -4_500, -1), -1),
    # convergence
    Broken("stopped after 4 evaluations with a leap", "leap", "eval_accuracy", stopped_after(4), -1),
    Broken("a leap from near the target", "leap", "eval_accuracy",
           accuracies(lambda index, one: one - 0.045 * (index < 13)), -1, verdict="pass"),
    Broken("stopped after 4 evaluations", "early", "eval_accuracy",
           both(stopped_after(4), accuracies(lambda index, one: one + 0.22 * (index < 3))), -1),
    Broken("trained weights at the first of several evaluations", "leap", "eval_accuracy",
           accuracies(lambda index, one: max(one, 0.65 + index * 1e-4))),
    Broken("accuracies of three digits", "noise", "eval_accuracy", accuracies(lambda _, one: round(one, 3)), -1),
    Broken("constant accuracy", "noise", "eval_accuracy", accuracies(lambda *_: 0.7211), -1, "fail"),
    Broken("the last accuracy is counted elsewhere", "evaluation-count", "eval_accuracy",
           telling("eval_accuracy", -1, epoch_num=16 * 150_080), -1, verdict="fail"),
    Broken("another accuracy is counted elsewhere", "evaluation-count", "eval_accuracy",
           telling("eval_accuracy", 5, epoch_num=6 * 150_080 + 448), 5),
    Broken("the target early, and not in the end", "target-kept", "eval_accuracy",
           both(none_reaching, setting("eval_accuracy", 0.7205, 12)), -1),
    Broken("the target early, and nearly in the end", "target-kept", "eval_accuracy",
           both(setting("eval_accuracy", 0.7196, -1), setting("eval_accuracy", 0.7205, 12)), -1,
           verdict="pass"),
    Broken("time in quotes", "time-number", "eval_start",
           lambda records: timed("eval_start", str(records[at(records, "eval_start")]["time_ms"]))(records)),
    # what the closed division fixes
    Broken("key in another spelling", "official", None, renamed("opt_lamb_beta_1", "opt_lamb_beta1")),
    Broken("key a list", "official", None, renamed("opt_lamb_beta_1", ["opt_lamb_beta_1"])),
]  # fmt: skip
