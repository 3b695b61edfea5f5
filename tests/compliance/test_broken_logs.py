"""A hundred ways to break a sound closed log, one table row each: what the judge says of it, and of which line."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from compliance.judge import judge
from tests.compliance.logs import (
    OWN,
    Mutation,
    Record,
    at,
    closed,
    demo,
    line,
    official_verdict,
    text,
    with_own_keys,
    write,
)

TEN_MINUTES = 600_000


class Broken(NamedTuple):
    """`line` counts from 1 in the broken log; None where no line is to blame."""

    name: str
    verdict: str
    rule: str
    key: str | None
    change: Mutation
    nth: int = 0


def setting(key: str, value: Any, nth: int = 0) -> Mutation:
    def change(records: list[Record]) -> list[Record]:
        records[at(records, key, nth)]["value"] = value
        return records

    return change


def telling(key: str, nth: int = 0, **metadata: Any) -> Mutation:
    def change(records: list[Record]) -> list[Record]:
        records[at(records, key, nth)]["metadata"].update(metadata)
        return records

    return change


def forgetting(key: str, field: str, nth: int = 0) -> Mutation:
    def change(records: list[Record]) -> list[Record]:
        del records[at(records, key, nth)]["metadata"][field]
        return records

    return change


def without(key: str, nth: int = 0) -> Mutation:
    def change(records: list[Record]) -> list[Record]:
        del records[at(records, key, nth)]
        return records

    return change


def later(key: str, milliseconds: float, nth: int = 0) -> Mutation:
    def change(records: list[Record]) -> list[Record]:
        records[at(records, key, nth)]["time_ms"] += milliseconds
        return records

    return change


def timed(key: str, time_ms: Any, nth: int = 0) -> Mutation:
    def change(records: list[Record]) -> list[Record]:
        records[at(records, key, nth)]["time_ms"] = time_ms
        return records

    return change


def again(key: str, milliseconds: float = 0, nth: int = 0, **changed: Any) -> Mutation:
    """The record a second time, right after the first."""

    def change(records: list[Record]) -> list[Record]:
        index = at(records, key, nth)
        copy = json.loads(json.dumps(records[index])) | changed
        copy["time_ms"] += milliseconds
        return [*records[: index + 1], copy, *records[index + 1 :]]

    return change


def going_on(records: list[Record], count: int = 1) -> list[Record]:
    """A resumption in the middle of the first block."""
    index = at(records, "block_start") + 1
    event = {**records[index - 1], "event_type": "POINT_IN_TIME", "key": "resumed", "value": count}
    return [*records[:index], event | {"metadata": {"samples": 4480, "after": "rank 3 was killed"}}, *records[index:]]


def no_result(value: Any) -> Mutation:
    return lambda records: renamed("seed", "not_a_result", 1)(again("seed", value=value)(records))


def moved(key: str, before: str, nth: int = 0) -> Mutation:
    """The record to before another key, with a time of then."""

    def change(records: list[Record]) -> list[Record]:
        record = records.pop(at(records, key, nth))
        index = at(records, before)
        record["time_ms"] = records[index]["time_ms"]
        return [*records[:index], record, *records[index:]]

    return change


def renamed(key: str, name: Any, nth: int = 0) -> Mutation:
    def change(records: list[Record]) -> list[Record]:
        records[at(records, key, nth)]["key"] = name
        return records

    return change


def epoch_nums(number: Callable[[int], Any]) -> Mutation:
    """All evaluations at the samples given for the first, second, ... of them."""

    def change(records: list[Record]) -> list[Record]:
        evaluations = [record for record in records if record["key"] == "eval_accuracy"]
        for index, record in enumerate(evaluations):
            record["metadata"]["epoch_num"] = number(index)
        return records

    return change


def reaching_after_run_stop(records: list[Record]) -> list[Record]:
    record = records.pop(at(records, "eval_accuracy", -1))
    record["time_ms"] = records[-1]["time_ms"] + 5
    return [*records, record]


def two_runs(records: list[Record]) -> list[Record]:
    start = at(records, "run_start")
    second = json.loads(json.dumps(records[start:]))
    for record in second:
        record["time_ms"] += TEN_MINUTES
    return [*records, *second]


def fewer_evaluations(records: list[Record]) -> list[Record]:
    return [
        record for record in records
        if not record["key"].startswith("eval_") or record["metadata"].get("epoch_num", 0) % (2 * 150_080) == 0
    ]  # fmt: skip


def none_reaching(records: list[Record]) -> list[Record]:
    return setting("eval_accuracy", 0.7153, -1)(records)


def own(key: str, value: Any) -> Mutation:
    return lambda records: setting(key, value)(with_own_keys(records))


def from_key(key: str, milliseconds: float, nth: int = 0, to: str | None = None) -> Mutation:
    """Everything from a record on is later, up to the last of another key."""

    def change(records: list[Record]) -> list[Record]:
        last = len(records) if to is None else at(records, to, -1)
        for record in records[at(records, key, nth) : last]:
            record["time_ms"] += milliseconds
        return records

    return change


def scaled(factor: float, since_start: bool = False) -> Mutation:
    """All times in another unit; `since_start`: of the run, which is slower or faster then."""

    def change(records: list[Record]) -> list[Record]:
        start = records[at(records, "run_start")]["time_ms"] if since_start else 0
        for record in records:
            record["time_ms"] = start + (record["time_ms"] - start) * factor
        return records

    return change


def counted(key: str, factor: float) -> Mutation:
    """Counts of samples in one key's metadata, times a factor."""

    def change(records: list[Record]) -> list[Record]:
        for record in records:
            if record["key"] == key:
                record["metadata"]["epoch_num"] = int(record["metadata"]["epoch_num"] * factor)
        return records

    return change


def accuracies(value: Callable[[int, float], float]) -> Mutation:
    """Accuracies made from their place and value."""

    def change(records: list[Record]) -> list[Record]:
        evaluations = [record for record in records if record["key"] == "eval_accuracy"]
        for index, record in enumerate(evaluations):
            record["value"] = value(index, record["value"])
        return records

    return change


def stopped_after(evaluations: int) -> Mutation:
    """A run cut after so many evaluations, the last of which is made to reach the target."""

    def change(records: list[Record]) -> list[Record]:
        cut, stop = at(records, "eval_stop", evaluations - 1) + 1, at(records, "train_samples")
        kept = [*records[:cut], *records[stop:]]
        kept[at(kept, "eval_accuracy", -1)]["value"] = 0.7212
        end = kept[cut - 1]["time_ms"]
        for record in kept[cut:]:
            record["time_ms"] = end
        kept[at(kept, "train_samples")]["value"] = evaluations * 150_080
        return kept

    return change


CLOSED_KEYS = (
    "global_batch_size", "opt_base_learning_rate", "opt_lamb_epsilon", "opt_learning_rate_training_steps",
    "opt_learning_rate_warmup_steps", "num_warmup_steps", "start_warmup_step", "opt_lamb_beta_1", "opt_lamb_beta_2",
    "opt_lamb_weight_decay_rate", "gradient_accumulation_steps",
)  # fmt: skip
REQUIRED_KEYS = (
    *CLOSED_KEYS, "cache_clear", "init_start", "init_stop", "run_start", "run_stop", "train_samples", "eval_samples",
    "submission_division", "submission_benchmark",
)  # fmt: skip


def _rule(key: str) -> str:
    return "batch-size" if key == "global_batch_size" else "hyperparameter"


TABLE = [
    *(Broken(f"{key} missing", "fail", "official", None, without(key)) for key in REQUIRED_KEYS if key != "init_stop"),
    Broken("init_stop missing", "fail", "official", "run_start", without("init_stop")),
    *(Broken(f"{key} NaN", "fail", _rule(key), key, setting(key, float("nan"))) for key in CLOSED_KEYS),
    *(Broken(f"{key} text", "fail", _rule(key), key, setting(key, "0.1")) for key in CLOSED_KEYS),
    *(Broken(f"{key} null", "fail", _rule(key), key, setting(key, None)) for key in CLOSED_KEYS),
    *(Broken(f"{key} infinite", "fail", _rule(key), key, setting(key, float("inf"))) for key in CLOSED_KEYS),
    *(
        Broken(f"{key} negative", "fail", _rule(key), key, setting(key, -0.5))
        for key in CLOSED_KEYS if key != "start_warmup_step"
    ),
    Broken("batch 0", "fail", "batch-size", "global_batch_size", setting("global_batch_size", 0)),
    Broken("batch a list", "fail", "batch-size", "global_batch_size", setting("global_batch_size", [448])),
    Broken("batch true", "fail", "batch-size", "global_batch_size", setting("global_batch_size", True)),
    Broken("batch a huge integer", "fail", "batch-size", "global_batch_size", setting("global_batch_size", 10**400)),
    Broken("batch 447", "warning", "samples", "eval_accuracy", setting("global_batch_size", 447)),
    Broken("training steps 0", "warning", "hyperparameter", "opt_learning_rate_training_steps",
           setting("opt_learning_rate_training_steps", 0)),
    Broken("too few steps", "warning", "samples", "eval_accuracy",
           setting("opt_learning_rate_training_steps", 900), -1),
    Broken("another optimizer", "fail", "optimizer", "opt_name", setting("opt_name", "adam")),
    Broken("another length", "fail", "reference-value", "max_sequence_length", setting("max_sequence_length", 128)),
    Broken("another batch later", "fail", "repeated", "global_batch_size", again("global_batch_size", value=64), 1),
    Broken("rate logged twice", "warning", "repeated", "opt_base_learning_rate", again("opt_base_learning_rate"), 1),
    Broken("division unknown", "fail", "division", "submission_division", setting("submission_division", "free")),
    Broken("division in capitals", "fail", "division", "submission_division", setting("submission_division", "Closed")),
    Broken("division a path", "fail", "division", "submission_division",
           setting("submission_division", "../training_4.1.0/closed")),
    Broken("division a list", "fail", "division", "submission_division", setting("submission_division", ["closed"])),
    Broken("two divisions", "fail", "division-once", "submission_division",
           again("submission_division", value="open"), 1),
    Broken("benchmark unknown", "fail", "benchmark", "submission_benchmark", setting("submission_benchmark", "gpt9")),
    Broken("benchmark that loads one file for ever", "fail", "benchmark", "submission_benchmark",
           setting("submission_benchmark", "common")),
    Broken("benchmark a path", "fail", "benchmark", "submission_benchmark",
           setting("submission_benchmark", "bert/../../training_5.0.0/closed_bert")),
    Broken("benchmark a list", "fail", "benchmark", "submission_benchmark", setting("submission_benchmark", ["bert"])),
    Broken("another benchmark", "fail", "official", None, setting("submission_benchmark", "retinanet")),
    Broken("resumed", "warning", "resumed", "resumed", going_on),
    Broken("no result", "fail", "not-a-result", "not_a_result", no_result("smoke")),
    Broken("no result, and no word of what it is", "fail", "not-a-result", "not_a_result", no_result(None)),
    Broken("a resumption left out", "fail", "resumed-count", "resumed", lambda records: going_on(records, 2)),
    Broken("no submitter's name", "warning", "names", "submission_org",
           setting("submission_org", "SUBMISSION_ORG_PLACEHOLDER")),
    Broken("no seed", "warning", "seed", None, without("seed")),
    Broken("a seed in words", "warning", "seed-value", "seed", setting("seed", "random")),
    Broken("a negative seed", "warning", "seed-value", "seed", setting("seed", -1)),
    Broken("caches kept", "warning", "cache-clear", "cache_clear", setting("cache_clear", False)),
    Broken("caches cleared on the clock", "warning", "cache-clear", "cache_clear", moved("cache_clear", "block_stop")),
    Broken("status aborted", "fail", "run-success", "run_stop", telling("run_stop", status="aborted")),
    Broken("status missing", "fail", "run-success", "run_stop", forgetting("run_stop", "status")),
    Broken("status null", "fail", "run-success", "run_stop", telling("run_stop", status=None)),
    Broken("status in capitals", "fail", "run-success", "run_stop", telling("run_stop", status="SUCCESS")),
    Broken("stopped before it started", "fail", "run-order", "run_stop", later("run_stop", -TEN_MINUTES)),
    Broken("started late, once more", "fail", "run-once", "run_start", again("run_start", 100_000), 1),
    Broken("stopped early, once more", "fail", "run-once", "run_stop", again("run_stop", -100_000), 1),
    Broken("started twice at once", "warning", "run-once", "run_start", again("run_start"), 1),
    Broken("two runs in a file", "fail", "run-once", "run_start", two_runs, 1),
    Broken("run_start before init_stop", "fail", "official", "run_start", moved("run_start", "init_stop")),
    Broken("half an hour of initialisation", "fail", "init-time", "init_stop",
           later("init_start", -1_801_000)),
    Broken("init_stop long after run_start", "warning", "init-before-run", "init_stop", later("init_stop", 60_000)),
    Broken("init_stop before init_start", "warning", "init-time", "init_stop", later("init_stop", -60_000)),
    Broken("training before the clock", "fail", "official", "block_start", moved("block_start", "init_stop")),
    Broken("training before the clock by time", "fail", "on-clock", "block_start",
           later("block_start", -TEN_MINUTES)),
    Broken("a block that ends after the run", "warning", "on-clock", "block_stop", later("block_stop", TEN_MINUTES)),
    Broken("a block without a stop", "warning", "intervals", "block_start", without("block_stop", 3), 3),
    Broken("a block without a start", "warning", "intervals", "block_stop", without("block_start", 3), 3),
    Broken("an evaluation without a stop", "warning", "intervals", "eval_start", without("eval_stop", 3), 3),
    Broken("an evaluation without a result", "warning", "intervals", "eval_stop", without("eval_accuracy", 3), 3),
    Broken("an evaluation that stops before it starts", "warning", "intervals", "eval_stop",
           later("eval_stop", -5_000, 3), 3),
    Broken("a block lost", "warning", "blocks-contiguous", "block_start",
           lambda records: without("block_stop", 3)(without("block_start", 3)(records)), 3),
    Broken("block without a count", "fail", "official", "block_start", forgetting("block_start", "epoch_count")),
    Broken("block of no samples", "fail", "official", "block_start", telling("block_start", epoch_count=0)),
    Broken("target missed", "fail", "target", "eval_accuracy", none_reaching, -1),
    Broken("target missed by a breath", "fail", "target", "eval_accuracy", setting("eval_accuracy", 0.7199, -1), -1),
    Broken("target after the run", "fail", "target-on-clock", "eval_accuracy", reaching_after_run_stop, -1),
    Broken("target before the run", "fail", "target-on-clock", "eval_accuracy",
           moved("eval_accuracy", "run_start", -1)),
    Broken("target after the run by time", "fail", "target-on-clock", "eval_accuracy",
           later("eval_accuracy", TEN_MINUTES, -1), -1),
    Broken("accuracy text", "fail", "accuracy", "eval_accuracy", setting("eval_accuracy", "0.73", -1), -1),
    Broken("accuracy null", "fail", "accuracy", "eval_accuracy", setting("eval_accuracy", None, 2), 2),
    Broken("accuracy NaN", "fail", "accuracy", "eval_accuracy", setting("eval_accuracy", float("nan"), -1), -1),
    Broken("accuracy in percent", "fail", "accuracy", "eval_accuracy", setting("eval_accuracy", 72.85, -1), -1),
    Broken("accuracy negative", "fail", "accuracy", "eval_accuracy", setting("eval_accuracy", -0.1, 1), 1),
    Broken("accuracy a list", "fail", "accuracy", "eval_accuracy", setting("eval_accuracy", [0.73], -1), -1),
    Broken("epoch_num missing", "fail", "official", "eval_accuracy", forgetting("eval_accuracy", "epoch_num", 2), 2),
    Broken("epoch_num text", "fail", "epoch-num", "eval_accuracy", telling("eval_accuracy", 2, epoch_num="many"), 2),
    Broken("epoch_num NaN", "fail", "epoch-num", "eval_accuracy",
           telling("eval_accuracy", 2, epoch_num=float("nan")), 2),
    Broken("epoch_num null", "fail", "epoch-num", "eval_accuracy", telling("eval_accuracy", 2, epoch_num=None), 2),
    Broken("epoch_num negative", "fail", "epoch-num", "eval_accuracy", telling("eval_accuracy", 2, epoch_num=-1), 2),
    Broken("epoch_num constant", "warning", "epoch-num-grows", "eval_accuracy", epoch_nums(lambda _: 150_080), 1),
    Broken("epoch_num falls", "fail", "epoch-num-grows", "eval_accuracy",
           epoch_nums(lambda index: (20 - index) * 150_080), 1),
    Broken("epoch_num steps back", "fail", "epoch-num-grows", "eval_accuracy",
           telling("eval_accuracy", 5, epoch_num=150_080), 5),
    Broken("epoch_num repeated", "warning", "epoch-num-grows", "eval_accuracy",
           telling("eval_accuracy", 5, epoch_num=5 * 150_080), 5),
    Broken("measured before the one before", "warning", "epoch-num-grows", "eval_accuracy",
           later("eval_accuracy", -15_000, 5), 5),
    Broken("epoch_num no whole batch", "warning", "samples", "eval_accuracy",
           telling("eval_accuracy", 5, epoch_num=6 * 150_080 + 13), 5),
    Broken("every second evaluation", "warning", "cadence", "eval_accuracy", fewer_evaluations),
    Broken("evaluated twice as often", "fail", "cadence", "eval_accuracy",
           epoch_nums(lambda index: (index + 1) * 168 * 448)),
    Broken("first evaluation left out", "note", "cadence", "eval_accuracy", without("eval_accuracy")),
    Broken("evaluated on a tenth", "fail", "eval-samples", "eval_samples", setting("eval_samples", 1000)),
    Broken("evaluated on too many", "fail", "eval-samples", "eval_samples", setting("eval_samples", [10_000, 10_000])),
    Broken("eval_samples text", "fail", "eval-samples", "eval_samples", setting("eval_samples", "10000")),
    Broken("train_samples text", "warning", "train-samples", "train_samples", setting("train_samples", "all")),
    Broken("train_samples 0", "warning", "train-samples", "train_samples", setting("train_samples", 0)),
    Broken("trained on fewer than evaluated after", "warning", "samples", "train_samples",
           setting("train_samples", 150_080)),
    Broken("trained on many more", "warning", "samples", "train_samples", setting("train_samples", 448 * 9400)),
    Broken("time as text", "fail", "record", "run_stop", timed("run_stop", "noon")),
    Broken("time null", "fail", "record", "run_stop", timed("run_stop", None)),
    Broken("time beyond floats", "fail", "record", "run_stop", timed("run_stop", 10**400)),
    Broken("time NaN", "fail", "time", "run_stop", timed("run_stop", float("nan"))),
    Broken("time negative", "warning", "time", "eval_start", timed("eval_start", -5)),
    # the clock
    Broken("run_stop 0.4 s before the evaluation at the target", "fail", "target-on-clock", "eval_accuracy",
           lambda records: timed("run_stop", records[at(records, "eval_accuracy", -1)]["time_ms"] - 400)(records), -1),
    Broken("run_start 0.4 s after the first block", "fail", "on-clock", "block_start",
           lambda records: timed("run_start", records[at(records, "block_start")]["time_ms"] + 400)(records)),
    Broken("an hour back", "fail", "clock-back", "block_start", from_key("block_start", -3_600_000, 5), 5),
    Broken("an hour on and back", "fail", "clock-back", "block_start",
           lambda records: from_key("block_start", -3_600_000, 7)(from_key("block_start", 3_600_000, 3)(records)), 7),
    Broken("two minutes back", "fail", "clock-back", "eval_accuracy", from_key("block_start", -120_000, 13), -1),
    Broken("hours from init_stop to run_start", "fail", "init-time", "init_stop",
           from_key("run_start", 2 * 3_600_000)),
    Broken("times in seconds", "fail", "time", "run_start", scaled(1e-3)),
    Broken("times in microseconds", "fail", "time", "run_start", scaled(1e3)),
    Broken("times in nanoseconds", "fail", "time", "run_start", scaled(1e6)),
    Broken("times in hours", "fail", "rate", "run_stop", scaled(1 / 3.6e6)),
    Broken("a hundred times as fast", "fail", "rate", "run_stop", scaled(0.01, since_start=True)),
    Broken("seconds cut out", "fail", "pace", "eval_accuracy", from_key("block_stop", -4_500, 6), 6),
    Broken("seconds cut out of the first interval", "fail", "pace", "eval_accuracy", from_key("block_stop", -4_500)),
    Broken("seconds cut out of the last interval", "fail", "pace", "eval_accuracy",
           from_key("block_stop", -4_500, -1), -1),
    # convergence
    Broken("stopped after 4 evaluations with a leap", "fail", "leap", "eval_accuracy", stopped_after(4), -1),
    Broken("stopped after 4 evaluations", "fail", "early", "eval_accuracy",
           lambda records: accuracies(lambda index, one: one + 0.22 * (index < 3))(stopped_after(4)(records)), -1),
    Broken("the target at the first of several evaluations", "fail", "leap", "eval_accuracy",
           accuracies(lambda index, one: max(one, 0.721 + index * 1e-4))),
    Broken("constant accuracy", "fail", "accuracy-moves", "eval_accuracy", accuracies(lambda *_: 0.7211), -1),
    Broken("constant accuracy, then the target", "fail", "accuracy-moves", "eval_accuracy",
           accuracies(lambda index, one: one if index == 13 else 0.65), -2),
    Broken("two accuracies in turn", "fail", "accuracy-moves", "eval_accuracy",
           accuracies(lambda index, one: one if index == 13 else 0.65 + index % 2 / 100), -2),
    Broken("the last accuracy is counted elsewhere", "fail", "evaluation-count", "eval_accuracy",
           telling("eval_accuracy", -1, epoch_num=16 * 150_080), -1),
    Broken("another accuracy is counted elsewhere", "warning", "evaluation-count", "eval_accuracy",
           telling("eval_accuracy", 5, epoch_num=6 * 150_080 + 448), 5),
    Broken("all accuracies are counted higher", "warning", "evaluation-count", "eval_accuracy",
           counted("eval_accuracy", 1.1), -1),
    Broken("the target early, and not in the end", "fail", "target-kept", "eval_accuracy",
           lambda records: setting("eval_accuracy", 0.7205, 12)(none_reaching(records)), -1),
    Broken("the target early, and nearly in the end", "warning", "target-kept", "eval_accuracy",
           lambda records: setting("eval_accuracy", 0.7205, 12)(setting("eval_accuracy", 0.7196, -1)(records)), -1),
    *(Broken(f"batch {batch:,}", "fail", "batch-size", "global_batch_size", setting("global_batch_size", batch))
      for batch in (1, 7, 65_537, 10**9)),
    Broken("batch 40,000", "fail", "batch-size", "global_batch_size", setting("global_batch_size", 40_000)),
    Broken("more parts than samples", "fail", "batch-size", "gradient_accumulation_steps",
           setting("gradient_accumulation_steps", 449)),
    Broken("time in quotes", "fail", "time-number", "eval_start",
           lambda records: timed("eval_start", str(records[at(records, "eval_start")]["time_ms"]))(records)),
    *(Broken(f"{key} missing", "warning", "names", None, without(key))
      for key in ("submission_org", "submission_platform")),
    # what the closed division fixes
    *(Broken(f"{key} {value}", "fail", "reference-value", key, own(key, value)) for key, value in (
        ("opt_gradient_clip_norm", 5), ("opt_lamb_learning_rate_decay_poly_power", 2),
        ("max_predictions_per_seq", 20), ("bertbench_clip_mode", "none"), ("bertbench_clip_mode", "bucket"),
        ("bertbench_clip_mode", ["before"]), ("bertbench_compression", "powersgd"), ("bertbench_compression", None),
        ("bertbench_sync_method", "diloco"), ("bertbench_sync_method", None),
        ("bertbench_loss_normalize", "global"), ("bertbench_ema_decay", 0.99),
        ("bertbench_hidden_dropout", 0), ("bertbench_attention_dropout", "0.1"),
        ("bertbench_checkpoint", False), ("bertbench_checkpoint", 1), ("bertbench_target", 0.5),
        ("bertbench_evaluation_interval", 500_000), ("bertbench_balance", "stratified"),
        ("bertbench_model", {**OWN["bertbench_model"], "layers": 2}), ("bertbench_model", "BERT-large"),
        ("bertbench_model", {**OWN["bertbench_model"], "vocab_size": 40_000}),
    )),
    Broken("another end of the decay", "fail", "reference-value", "opt_end_learning_rate",
           setting("opt_end_learning_rate", 1e-5)),
    Broken("a key of ours taken out", "warning", "reference-keys", None,
           lambda records: without("bertbench_compression")(with_own_keys(records))),
    Broken("key in another spelling", "fail", "official", None, renamed("opt_lamb_beta_1", "opt_lamb_beta1")),
    Broken("key a list", "fail", "official", None, renamed("opt_lamb_beta_1", ["opt_lamb_beta_1"])),
]  # fmt: skip


# It would run a rule file that the log names, or load one file for ever.
NOT_SHOWN_TO_THE_OFFICIAL_CHECKER = ("division a path", "benchmark that loads one file for ever")


@pytest.mark.parametrize("broken", TABLE, ids=lambda broken: broken.name)
def test_every_broken_log_is_found_with_its_rule_and_line(tmp_path: Path, broken: Broken) -> None:
    records = broken.change(closed())
    path = write(tmp_path / "result_0.txt", records)
    judgement = judge(path, "5.0.0")
    expected = None if broken.key is None else at(records, broken.key, broken.nth) + 1
    where = judgement.notes if broken.verdict == "note" else judgement.findings
    assert (broken.rule, expected) in {(finding.rule, finding.line) for finding in where}
    assert judgement.verdict == ("pass" if broken.verdict in ("warning", "note") else broken.verdict)
    assert all(finding.found and finding.expected and finding.remedy for finding in judgement.findings)
    if broken.name not in NOT_SHOWN_TO_THE_OFFICIAL_CHECKER:
        assert judgement.official.verdict == official_verdict(path, "5.0.0")


class Damaged(NamedTuple):
    """A log's text, damaged; `line` as in Broken, -1 for the last."""

    name: str
    verdict: str
    rule: str
    line: int | None
    change: Callable[[str], str | bytes]


def on(number: int, change: Callable[[str], str]) -> Callable[[str], str]:
    def changed(content: str) -> str:
        lines = content.split("\n")
        lines[number - 1] = change(lines[number - 1])
        return "\n".join(lines)

    return changed


def instead(record: str) -> Callable[[str], str]:
    return lambda _: f":::MLLOG {record}"


TEXTS = [
    Damaged("last line cut", "fail", "record", -1, lambda content: content[:-40]),
    Damaged("cut between lines", "fail", "run-whole", None, lambda content: content[: content.rindex(":::")]),
    Damaged("two records in a line", "warning", "record-read", 8,
            lambda content: "\n".join(content.split("\n")[:7]) + "\n" + " ".join(content.split("\n")[7:9]) + "\n"
            + "\n".join(content.split("\n")[9:])),
    Damaged("no blank after the token", "fail", "record-read", 3, on(3, lambda one: one.replace("LOG ", "LOG"))),
    Damaged("a record that is a list", "fail", "record", 3, on(3, instead("[1]"))),
    Damaged("a record that is null", "fail", "record", 3, on(3, instead("null"))),
    Damaged("a record without a value", "fail", "record", 3,
            on(3, instead('{"time_ms": 1, "key": "x", "metadata": {}}'))),
    Damaged("a record without fields", "fail", "record", 3, on(3, instead("{}"))),
    Damaged("an empty record", "fail", "record", 3, on(3, instead(""))),
    Damaged("single quotes", "fail", "record", 3, on(3, lambda one: one.replace('"', "'"))),
    Damaged("a field twice", "cannot-judge", "record-unambiguous", 9,
            on(9, lambda one: one.replace('"value"', '"value": 7, "value"'))),
    Damaged("a field of the metadata twice", "cannot-judge", "record-unambiguous", 9,
            on(9, lambda one: one.replace('"file"', '"file": 7, "file"'))),
    Damaged("NUL in a record", "cannot-judge", "text", 9, on(9, lambda one: "\0" + one)),
    Damaged("a hole", "warning", "text-hole", 9, on(9, lambda one: "\0" * 512 + "\n" + one)),
    Damaged("deep JSON", "cannot-judge", "readable", 9, on(9, instead("[" * 100_000))),
    Damaged("rather deep JSON", "cannot-judge", "readable", 9, on(9, instead('{"a":' * 80 + "1" + "}" * 80))),
    Damaged("an integer of 5,000 digits", "fail", "record", 9, on(9, lambda one: one.replace("448", "1" * 5000))),
    Damaged("an endless record", "cannot-judge", "readable", 9, on(9, instead("x" * (2 << 20)))),
    Damaged("UTF-16", "cannot-judge", "readable", None, lambda content: content.encode("utf-16")),
    Damaged("UTF-16 without a mark", "cannot-judge", "readable", None, lambda content: content.encode("utf-16-le")),
    Damaged("gzip", "cannot-judge", "readable", None, lambda content: gzip.compress(content.encode())),
    Damaged("empty", "cannot-judge", "readable", None, lambda _: ""),
    Damaged("another text", "cannot-judge", "readable", None, lambda _: "hello\n"),
]  # fmt: skip


@pytest.mark.parametrize("damaged", TEXTS, ids=lambda damaged: damaged.name)
def test_damaged_text_is_found_with_its_line(tmp_path: Path, damaged: Damaged) -> None:
    content = text(closed())
    judgement = judge(write(tmp_path / "result_0.txt", damaged.change(content)), "5.0.0")
    blamed = content.count("\n") if damaged.line == -1 else damaged.line
    assert (damaged.rule, blamed) in {(finding.rule, finding.line) for finding in judgement.findings}
    assert judgement.verdict == ("pass" if damaged.verdict == "warning" else damaged.verdict)


def test_an_error_is_shown_however_many_warnings_stand_before_it(tmp_path: Path) -> None:
    records = closed()
    for index in range(10):
        records[at(records, "eval_start", index)]["time_ms"] = -1
    records[at(records, "run_stop")]["time_ms"] *= 1000
    judgement = judge(write(tmp_path / "result_0.txt", records), "5.0.0")
    times = [(finding.severity, finding.line) for finding in judgement.findings if finding.rule == "time"]
    assert len(times) == 5
    assert times[-1] == ("error", at(records, "run_stop") + 1)


def test_a_closed_log_of_ours_tells_all_and_another_what_it_does_not(tmp_path: Path) -> None:
    told = judge(write(tmp_path / "result_0.txt", with_own_keys(closed())), "5.0.0", strict=True)
    assert (told.verdict, told.findings, told.notes) == ("pass", (), ())
    foreign = judge(write(tmp_path / "result_1.txt", closed()), "5.0.0", strict=True)
    assert (foreign.verdict, foreign.findings, [note.rule for note in foreign.notes]) == ("pass", (), ["unknown"])
    assert "clip norm, power of the decay, predictions a sample, clip mode, compression" in foreign.notes[0].found


def test_an_open_run_is_evaluated_on_the_clock_too(tmp_path: Path) -> None:
    judgement = judge(write(tmp_path / "result_0.txt", reaching_after_run_stop(demo())), "5.0.0")
    assert ("on-clock", len(demo())) in {(finding.rule, finding.line) for finding in judgement.findings}


def test_an_open_run_says_its_batch(tmp_path: Path) -> None:
    judgement = judge(write(tmp_path / "result_0.txt", without("global_batch_size")(demo())), "5.0.0")
    assert [(finding.rule, finding.severity) for finding in judgement.findings] == [("batch-size", "warning")]


def test_a_miss_of_the_target_says_how_far_it_is_off_and_where(tmp_path: Path) -> None:
    records = none_reaching(closed())
    judgement = judge(write(tmp_path / "result_0.txt", records), "5.0.0")
    (missed,) = [finding for finding in judgement.findings if finding.rule == "target"]
    best = at(records, "eval_accuracy", -1)
    assert missed.line == best + 1
    assert missed.found == "best accuracy 0.71530 after 2,101,120 samples, 0.00470 short"
    assert missed.expected == "accuracy 0.72"


def test_lines_are_those_of_the_file_not_of_its_records(tmp_path: Path) -> None:
    lines = [f"{number % 8}: noise\n{line(record)}" for number, record in enumerate(none_reaching(closed()))]
    judgement = judge(write(tmp_path / "result_0.txt", "Starting\r10 %\r20 %\n" + "\n".join(lines)), "5.0.0")
    (missed,) = [finding for finding in judgement.findings if finding.rule == "target"]
    assert missed.line == 1 + 2 * (at(none_reaching(closed()), "eval_accuracy", -1) + 1)
