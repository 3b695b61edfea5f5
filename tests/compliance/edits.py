"""One visible edit of one small closed log, closed.txt, for each rule and each question about a log."""

import re
from pathlib import Path
from typing import NamedTuple

CLOSED = Path(__file__).with_name("closed.txt").read_text()


class Edit(NamedTuple):
    """Replace the first `old` of the log, a regular expression, by `new`; the rule finds it on line `line`."""

    rule: str
    old: str
    new: str
    line: int | None
    verdict: str = "fail"
    ruleset: str = "5.0.0"

    def applied(self) -> str:
        text, count = re.subn(self.old, lambda _: self.new, CLOSED, count=1)
        assert count == 1, self
        return text


def value(key: str, new: str) -> tuple[str, str]:
    """The first value of a key, instead of what it is."""
    return rf'(?<="{key}", "value": )[^,}}]+', new


def last_value(key: str, new: str) -> tuple[str, str]:
    return rf'(?<="{key}", "value": )[^,]+(?!.*\n(.*\n)*.*"{key}")', new


_SECOND_ACCURACY = (
    '(?<="eval_accuracy", "value": 0.55412, "metadata": {"file": "train.py", "lineno": 7, "epoch_num": )300160'
)
_SECOND_START = '(?<="eval_start", "value": null, "metadata": {"file": "train.py", "lineno": 7, "epoch_num": )300160'


def before(key: str, time_ms: int, added: str, new: str = "null", metadata: str = "{}") -> tuple[str, str]:
    """Another record before the first one of a key."""
    record = f'{{"time_ms": {time_ms}, "key": "{added}", "value": {new}, "metadata": {metadata}}}'
    return f'(?=:::MLLOG .*"key": "{key}")', f":::MLLOG {record}\n"


BREACHES = [
    # the log's lines
    Edit("record", r"\}\}\n\Z", "}", 71),
    Edit("record-unambiguous", '"value": 448', '"value": 7, "value": 448', 8, "cannot-judge"),
    Edit("text", "(?=.*opt_name)", "\0", 11, "cannot-judge"),
    Edit("official", r'.*"opt_lamb_beta_1".*\n', "", None),
    # divisions
    Edit("benchmark", *value("submission_benchmark", '"resnet"'), 3, "cannot-judge"),
    Edit("division", *value("submission_division", '"Closed"'), 4),
    # hyperparameters
    Edit("batch-size", *value("global_batch_size", "0"), 8),
    Edit("batch-size", *value("global_batch_size", '"many"'), 8),
    Edit("batch-size", *value("global_batch_size", "448.5"), 8),
    Edit("hyperparameter", *value("opt_base_learning_rate", "NaN"), 12),
    Edit("hyperparameter", *value("opt_lamb_beta_2", "[0.9, 0.999]"), 19),
    Edit("hyperparameter", *value("start_warmup_step", "null"), 17),
    Edit("optimizer", *value("opt_name", '"adamw"'), 11),
    Edit("optimizer", *value("opt_name", '"adam_lambda"'), 11),
    Edit("repeated", *before("d_batch_size", 1747000000000, "global_batch_size", "64"), 9),
    # fixed values
    Edit("reference-value", *value("opt_gradient_clip_norm", "5"), 21),
    Edit("reference-value", *value("opt_lamb_learning_rate_decay_poly_power", "2"), 22),
    Edit("reference-value", *value("opt_end_learning_rate", "1e-5"), 23),
    Edit("reference-value", *value("max_sequence_length", "1024"), 24),
    Edit("reference-value", *value("max_sequence_length", '"long"'), 24),
    Edit("reference-value", *value("max_predictions_per_seq", "20"), 25),
    Edit("reference-value", *value("bertbench_clip_mode", '"bucket"'), 26),
    Edit("reference-value", *value("bertbench_compression", '"powersgd"'), 27),
    Edit("reference-value", *value("bertbench_compression", '"fp8"'), 27, ruleset="1.1.0"),
    Edit("reference-value", *value("bertbench_sync_method", '"diloco"'), 28),
    Edit("reference-value", *value("bertbench_loss_normalize", '"global"'), 29),
    Edit("reference-value", *value("bertbench_ema_decay", "0.99"), 30),
    Edit("reference-value", *value("bertbench_hidden_dropout", "0"), 31),
    Edit("reference-value", *value("bertbench_attention_dropout", "null"), 32),
    Edit("reference-value", '"layers": 24', '"layers": 12', 33),
    Edit("reference-value", '"vocab_size": 30528', '"vocab_size": 40000', 33),
    Edit("reference-value", *value("bertbench_balance", '"stratified"'), 34),
    Edit("reference-value", *value("bertbench_checkpoint", "false"), 35),
    Edit("reference-value", *value("bertbench_target", "0.5"), 36),
    # quality
    Edit("accuracy", *value("eval_accuracy", '"0.42"'), 42),
    Edit("target", "0.72134", "0.71994", 67),
    Edit("target-on-clock", "1747000115950", "1747000107000", 67),
    Edit("cadence", r'.*"eval_accuracy", "value": 0.63218.*\n', "", 56),
    Edit("eval-samples", *value("eval_samples", "1000"), 70),
    # the clock
    Edit("run-once", *before("run_stop", 1747000090000, "run_stop", metadata='{"status": "success"}'), 72),
    Edit("run-order", "1747000115950", "1747000050000", 71),
    Edit("run-order", *before("init_stop", 1747000115950, "run_stop", metadata='{"status": "success"}'), 37),
    Edit("time", "1747000060100(?=.*run_start)", "1747000060", 38),
    Edit("init-time", "1747000000000(?=.*init_start)", "1746998159000", 37),
    Edit("on-clock", "1747000060100(?=.*block_start)", "1747000059000", 39),
    Edit("resumed", *before("block_stop", 1747000065000, "resumed", "2"), 40),
    Edit("not-a-result", *before("init_stop", 1747000060000, "not_a_result", '"smoke"'), 37),
    Edit("run-success", "success", "aborted", 71),
    # convergence points and seeds
    Edit("epoch-num", _SECOND_ACCURACY, "100", 47),
    Edit("epoch-num", _SECOND_ACCURACY, '"many"', 47),
    Edit("seed-value", *value("seed", '"random"'), 7),
]  # fmt: skip
"""What breaks a rule."""

MISSING = [
    Edit("seed-value", r'.*"key": "seed".*\n', "", None, "pass"),
    Edit("cache-clear", *value("cache_clear", "false"), None, "pass"),
    Edit("record-read", "(?=:::MLLOG .*d_batch_size)", ":::MLLOG{}\n", None, "pass"),
    Edit("record-read", "(?=:::MLLOG .*d_batch_size)", "\0" * 512 + "\n", None, "pass"),
    Edit("resumed", *before("block_stop", 1747000065000, "resumed", "1"), None, "pass"),
]  # fmt: skip
"""Evidence that the rules ask for and the log doesn't give: it passes, but not with --strict."""

UNSEEN = [
    Edit("time-number", "1747000000000", '"1747000000000"', 1, "pass"),
    Edit("reference-value", r'.*"bertbench_compression".*\n', "", None, "pass"),
    Edit("reference-value", *value("max_sequence_length", "128"), 24, "pass"),
]  # fmt: skip
"""What the log doesn't show and no rule asks for: it passes, with --strict too, and the output says so."""

QUESTIONS = [
    Edit("samples", *value("train_samples", "400000"), 69, "pass"),
    Edit("samples", *before("run_stop", 1747000115940, "samples_skipped", "3"), 71, "pass"),
    Edit("samples", _SECOND_START, "200160", 47, "pass"),
    Edit("pace", '1747000088020(?=.*"eval_accuracy")', "1747000081000", 52, "pass"),
]  # fmt: skip
"""Figures that a reviewer may ask about."""

FREE = [
    Edit("", *value("opt_base_learning_rate", "30.0"), None),
    Edit("", *value("opt_lamb_weight_decay_rate", "1.7"), None),
    Edit("", *value("opt_learning_rate_training_steps", "0"), None),
    Edit("", *value("start_warmup_step", "-200000"), None),
    Edit("", *value("opt_name", '"apex.optimizers.FusedLAMB"'), None),
    Edit("", *value("eval_samples", "10080"), None),
    Edit("", *value("eval_samples", "[10000]"), None),
    Edit("", *value("seed", "-1"), None),
    Edit("", *value("seed", '"12"'), None),
    Edit("", *before("init_stop", 1747000059000, "hidden_act", '"relu"'), None),
    Edit("", "0.72134", "0.8", None),
    Edit("", '"value": 0.70156', '"value": 0.673', None),
    Edit("", "0.63218", "0.02", None),
    Edit("", *value("eval_accuracy", "72.1"), None),
    Edit("", *value("eval_accuracy", "NaN"), None),
    Edit("", *value("global_batch_size", '"448"'), None),
    Edit("", *value("global_batch_size", "[448]"), None),
    Edit("", *value("opt_lamb_beta_2", '"0.999"'), None),
    Edit("", *value("opt_lamb_epsilon", '"1e-6"'), None),
    *(Edit("", *value("bertbench_compression", f'"{name}"'), None) for name in ("tf32", "fp64", "int8", "fp8")),
    Edit("", *before("run_start", 1747000060000, "opt_gradient_clip_norm", '"1.0"'), None),
]  # fmt: skip
"""What no rule fixes."""
