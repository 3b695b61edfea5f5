"""One visible edit of one small closed log, closed.txt, for each rule and each question about a log."""

from pathlib import Path
from typing import NamedTuple

from tests.compliance.mutations import (
    Mutation,
    added,
    added_line,
    changed,
    damaged,
    field_of,
    metadata_of,
    setting,
    timed,
    without,
)

CLOSED = Path(__file__).with_name("closed.txt").read_text()


class Edit(NamedTuple):
    """A change of the small closed log, and the rule that finds it on line `line`."""

    rule: str
    change: Mutation
    line: int | None
    verdict: str = "fail"
    ruleset: str = "5.0.0"

    def applied(self) -> str:
        return changed(CLOSED, self.change)


BREACHES = [
    # the log's lines
    Edit("record", damaged("run_stop", '"success"}}', '"success"}'), 71),
    Edit("record-unambiguous", damaged("global_batch_size", "448", '7, "value": 448'), 8, "cannot-judge"),
    Edit("text", damaged("opt_name", ":::MLLOG", "\0:::MLLOG"), 11, "cannot-judge"),
    Edit("official", without("opt_lamb_beta_1"), None),
    # divisions
    Edit("benchmark", setting("submission_benchmark", "resnet"), 3, "cannot-judge"),
    Edit("division", setting("submission_division", "Closed"), 4),
    # hyperparameters
    Edit("batch-size", setting("global_batch_size", 0), 8),
    Edit("batch-size", setting("global_batch_size", 448.5), 8),
    Edit("hyperparameter", setting("opt_base_learning_rate", float("nan")), 12),
    Edit("hyperparameter", setting("start_warmup_step", None), 17),
    Edit("optimizer", setting("opt_name", "adamw"), 11),
    *(
        Edit("optimizer", setting("opt_name", name), 11)
        for name in ("adam_lambda", "not LAMB", "clamb")
    ),
    Edit("repeated", added("d_batch_size", 1747000000000, "global_batch_size", 64), 9),
    # fixed values
    Edit("reference-value", setting("opt_gradient_clip_norm", 5), 21),
    Edit("reference-value", setting("opt_lamb_learning_rate_decay_poly_power", 2), 22),
    Edit("reference-value", setting("opt_end_learning_rate", 1e-5), 23),
    Edit("reference-value", setting("max_sequence_length", 1024), 24),
    Edit("reference-value", setting("max_predictions_per_seq", 20), 25),
    Edit("reference-value", setting("bertbench_clip_mode", "bucket"), 26),
    Edit("reference-value", setting("bertbench_compression", "powersgd"), 27),
    Edit("reference-value", setting("bertbench_compression", "fp8"), 27, ruleset="1.1.0"),
    Edit("reference-value", setting("bertbench_sync_method", "diloco"), 28),
    Edit("reference-value", setting("bertbench_loss_normalize", "global"), 29),
    Edit("reference-value", setting("bertbench_ema_decay", 0.99), 30),
    Edit("reference-value", setting("bertbench_hidden_dropout", 0), 31),
    Edit("reference-value", setting("bertbench_attention_dropout", None), 32),
    Edit("reference-value", field_of("bertbench_model", "layers", 12), 33),
    Edit("reference-value", setting("bertbench_balance", "stratified"), 34),
    Edit("reference-value", setting("bertbench_checkpoint", False), 35),
    Edit("reference-value", setting("bertbench_target", 0.5), 36),
    # quality
    Edit("accuracy", setting("eval_accuracy", "0.42"), 42),
    Edit("target", setting("eval_accuracy", 0.71994, -1), 67),
    Edit("target-on-clock", timed("run_stop", 1747000107000), 67),
    Edit("cadence", without("eval_accuracy", 2), 56),
    Edit("eval-samples", setting("eval_samples", 1000), 70),
    # the clock
    Edit("run-once", added("run_stop", 1747000090000, "run_stop", metadata={"status": "success"}), 72),
    Edit("run-order", timed("run_stop", 1747000050000), 71),
    Edit("run-order", added("init_stop", 1747000115950, "run_stop", metadata={"status": "success"}), 37),
    Edit("time", timed("run_start", 1747000060), 38),
    *(
        Edit("time-number", timed("run_start", value), 38)
        for value in (True, "1" * 4_000, float("inf"), "nan")
    ),
    Edit("init-time", timed("init_start", 1746998159000), 37),
    Edit("on-clock", timed("block_start", 1747000059000), 39),
    Edit("resumed", added("block_stop", 1747000065000, "resumed", 2), 40),
    Edit("not-a-result", added("init_stop", 1747000060000, "not_a_result", "smoke"), 37),
    Edit("run-success", metadata_of("run_stop", "status", "aborted"), 71),
    # convergence points and seeds
    Edit("epoch-num", metadata_of("eval_accuracy", "epoch_num", 100, 1), 47),
    Edit("seed-value", setting("seed", "random"), 7),
]  # fmt: skip
"""Edits that break a rule."""

MISSING = [
    Edit("seed-value", without("seed"), None, "pass"),
    Edit("cache-clear", setting("cache_clear", False), None, "pass"),
    Edit("record-read", added_line("d_batch_size", ":::MLLOG{}"), None, "pass"),
    Edit("record-read", added_line("d_batch_size", "\0" * 512), None, "pass"),
    Edit("resumed", added("block_stop", 1747000065000, "resumed", 1), None, "pass"),
]  # fmt: skip
"""Evidence that the rules ask for and the log lacks: the log passes, but not with --strict."""

UNSEEN = [
    Edit("time-number", timed("cache_clear", "1747000000000"), 1, "pass"),
    Edit("reference-value", without("bertbench_compression"), None, "pass"),
    Edit("reference-value", setting("max_sequence_length", 128), 24, "pass"),
]  # fmt: skip
"""Values that the log lacks and no rule asks for: the log passes, even with --strict, and the output notes it."""

QUESTIONS = [
    Edit("samples", setting("train_samples", 400000), 69, "pass"),
    Edit("samples", metadata_of("eval_start", "epoch_num", 200160, 1), 47, "pass"),
    Edit("pace", timed("eval_accuracy", 1747000081000, 2), 52, "pass"),
    Edit("accuracies", setting("eval_accuracy", 72.1), 42, "pass"),
    Edit("accuracies", setting("eval_accuracy", -0.1), 42, "pass"),
]  # fmt: skip
"""Figures that a reviewer may ask about."""

FREE = [
    Edit("", setting("opt_base_learning_rate", 30.0), None),
    Edit("", setting("start_warmup_step", -200000), None),
    *(
        Edit("", setting("opt_name", name), None)
        for name in (
            "apex.optimizers.FusedLAMB", "NVLAMB", "DistributedFusedLAMBV2", "distributed_fused_lamb",
            "LAMB optimizer",
        )
    ),
    Edit("", setting("eval_samples", 10080), None),
    Edit("", setting("seed", -1), None),
    Edit("", setting("seed", "12"), None),
    Edit("", added("init_stop", 1747000059000, "hidden_act", "relu"), None),
    Edit("", setting("eval_accuracy", 0.8, -1), None),
    Edit("", setting("eval_accuracy", 0.02, 2), None),
    Edit("", setting("eval_accuracy", float("nan")), None),
    Edit("", setting("global_batch_size", "448"), None),
    Edit("", setting("global_batch_size", [448]), None),
    Edit("", setting("opt_lamb_epsilon", "1e-6"), None),
    *(Edit("", setting("bertbench_compression", name), None) for name in ("tf32", "fp8")),
    Edit("", added("run_start", 1747000060000, "opt_gradient_clip_norm", "1.0"), None),
]  # fmt: skip
"""Values that no rule fixes."""
