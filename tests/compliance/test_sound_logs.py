"""Sound logs with the oddities of published ones: the judge finds nothing, and agrees with the official checker."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compliance import judge_log
from compliance.read.find import find_logs
from tests.compliance.logs import (
    RESULTS,
    RULESETS,
    Record,
    at,
    closed,
    demo,
    judged,
    line,
    official_verdict,
    text,
    write,
)
from tests.compliance.mutations import appended, counts, from_key, in_turn, later, moved, setting, shifted, without

Manner = Callable[[list[Record]], str]
EVALUATION = ("eval_start", "eval_accuracy", "eval_stop")


def mutated(*changes: Callable[[list[Record]], list[Record]]) -> Manner:
    return in_turn(*changes, text)


def prefixed(records: list[Record]) -> str:
    return "".join(f"[1,{number % 8}]<stdout>: {line(record)}\n" for number, record in enumerate(records))


def cr_only(records: list[Record]) -> str:
    return text(records).replace("\n", "\r")


def crlf_without_a_last_end(records: list[Record]) -> str:
    return text(records).rstrip("\n").replace("\n", "\r\n")


def among_other_output(records: list[Record]) -> str:
    before = 'STARTING TIMING RUN AT 2023-05-06\n:::DLPAL image 4242 16 node[001-016]\n:::SYSJSON {"a": "\u00e9"}\n'
    lines = (f"{line(record)}\nstep 7 loss 1.5\r step 8 loss 1.4\r\n" for record in records)
    return before + "".join(lines) + "RESULT,bert,1\n"


def late_writers(records: list[Record]) -> str:
    """Lines of two hosts, some seconds out of order: cache_clear and the seed of the second host come late."""
    late = [records.pop(at(records, "cache_clear")), records.pop(at(records, "seed"))]
    index = at(records, "init_stop")
    return text([*records[:index], *late, *records[index:]])


def times_out_of_order(records: list[Record]) -> str:
    for record in records:
        if record["key"] in ("seed", "global_batch_size", "weights_initialization"):
            record["time_ms"] += 4_000
    return text(records)


def one_block(records: list[Record]) -> str:
    """One epoch and one block, and only accuracies for evaluations, as in many logs."""
    kept, first = [], True
    for record in records:
        key = record["key"]
        if key == "block_start" and first:
            start = {**record, "metadata": {"file": "a.py", "lineno": 1, "epoch_num": 0}}
            kept += [{**start, "key": "epoch_start"}, record]
            first = False
        elif key == "train_samples":
            stop = {**start, "time_ms": record["time_ms"]}
            kept += [{**stop, "key": "block_stop", "metadata": {"first_epoch_num": 0}}, {**stop, "key": "epoch_stop"}]
            kept.append(record)
        elif key not in ("block_start", "block_stop", "eval_start", "eval_stop"):
            kept.append(record)
    return text(kept)


def bare_fields(records: list[Record]) -> str:
    return "".join(
        ":::MLLOG " + json.dumps({field: record[field] for field in ("key", "value", "time_ms", "metadata")}) + "\n"
        for record in records
    )


def every_rank(records: list[Record]) -> str:
    """Once per rank, or per node: init_start, cache_clear, seeds."""
    many = []
    for record in records:
        many += [record] * (16 if record["key"] in ("init_start", "cache_clear") else 1)
        if record["key"] == "seed":
            many += [{**record, "value": record["value"] + rank} for rank in range(1, 16)]
    return text(many)


def values_of_other_types(records: list[Record]) -> str:
    """Floats, lists with one element, and text, where the official checker accepts them."""
    values = {
        "train_samples": [2_101_120.0], "eval_samples": [10_000], "global_batch_size": 448.0, "cache_clear": "True",
        "opt_name": "torch.optim.DistributedFusedLAMB", "max_sequence_length": "512",
    }  # fmt: skip
    return mutated(*(setting(key, value) for key, value in values.items()), counts(float))(records)


def block_after_the_target(records: list[Record]) -> str:
    end = at(records, "run_stop")
    before = records[at(records, "block_start", -1)]
    metadata = {**before["metadata"], "first_epoch_num": 14 * 150_080}
    last = {**before, "metadata": metadata, "time_ms": records[end]["time_ms"] + 3}
    stop = {**last, "key": "block_stop", "time_ms": last["time_ms"] + 4_000}
    return text([*records, last, stop])


def evaluated_in_parallel(records: list[Record]) -> str:
    """Evaluations are logged after training, which continued for two blocks during the last of them, for hours."""
    start = records[at(records, "run_start")]["time_ms"]
    for record in records[at(records, "run_start") :]:
        record["time_ms"] = start + round((record["time_ms"] - start) * 100.37)
    evaluations = [record for record in records if record["key"] == "eval_accuracy"]
    stop = records[at(records, "run_stop")]["time_ms"] = evaluations[-1]["time_ms"]
    others = [record for record in records if not record["key"].startswith("eval_")]
    end = at(others, "train_samples")
    last = others[at(others, "block_start", -1)]
    more = []
    for number in (14, 15):
        metadata = {**last["metadata"], "first_epoch_num": number * 150_080}
        began = {**last, "metadata": metadata, "time_ms": stop + (number - 14) * 900_000}
        more += [began, {**began, "key": "block_stop", "time_ms": began["time_ms"] + 899_000}]
    samples = [record for record in records if record["key"] == "eval_samples"]
    return text([*others[:end], *more, *evaluations, *samples, *others[end:]])


def other_events(records: list[Record]) -> str:
    """Events that loggers add: settings and a warm-up before the clock, losses on it, and statistics after it."""
    start, stop = at(records, "run_start"), at(records, "run_stop")
    before = {"dropout_rate": 0.1, "memory_gb": 40.1, "steps": 6_700, "synthetic_warmup": {"steps": 10}}
    rates = [150_080 / 9.3 * (0.96 + number % 3 / 25) for number in range(13)]
    after = {
        "time_to_train": 131.25 / 60,
        "raw_train_time": 122.0,
        "elapsed_time": 131.9,
        "samples/s": 16_008,
        "eval_mlm_accuracy": records[stop - 6]["value"],
    }

    def events(at_record: int, values: dict[str, Any]) -> list[Record]:
        return [{**records[at_record], "key": key, "value": value, "metadata": {}} for key, value in values.items()]

    during = [
        one for number, rate in enumerate(rates)
        for one in events(start, {"tracked_stats": {"throughput": rate, "loss": 6.5 - number % 5 / 9, "lr": 1e-4}})
    ]  # fmt: skip
    began = [*records[:start], *events(start - 1, before), records[start]]
    return text([*began, *during, *records[start + 1 :], *events(stop, after)])


MANNERS: dict[str, Manner] = {
    **{manner.__name__: manner for manner in (
        prefixed, cr_only, crlf_without_a_last_end, among_other_output, late_writers, times_out_of_order,
        one_block, bare_fields, every_rank, values_of_other_types, block_after_the_target,
        evaluated_in_parallel, other_events,
    )},
    "keys after run_stop": mutated(
        appended("tracked_stats", {"throughput": 16_008.2}), appended("submission_benchmark", "bert")),
    "small epoch nums": mutated(counts(lambda samples: samples // 150_080)),
    "nominal samples": mutated(counts(lambda samples: samples // 150_080 * 150_000)),
    "batches rounded down": mutated(counts(lambda samples: samples // 150_080 * 334 * 448)),
    # packed batches hold about two samples a row: the count varies, the blocks' numbers don't follow
    "packed samples": mutated(
        shifted("eval_accuracy", "epoch_num", lambda number: number * 37 % 401 - 200),
        lambda records: [record for record in records if record["key"] not in ("eval_start", "eval_stop")]),
    "evaluated beyond the target": mutated(
        setting("eval_accuracy", 0.7206, -2), setting("train_samples", 156_725_653)),
    "late first evaluation": mutated(*map(without, EVALUATION)),
    "planned samples before the run": mutated(
        moved("train_samples", "global_batch_size"), setting("train_samples", 6_700 * 448)),
    "a machine that others use": mutated(
        *(from_key("block_stop", 871 * number**2 % 2_700 - 1_350, number) for number in range(14))),
    # a writer that stalls: one accuracy is logged late by most of an interval
    "late line": mutated(
        later("eval_accuracy", 5_000, 6), later("eval_stop", 5_000, 6), later("block_start", 5_000, 7)),
}  # fmt: skip


@pytest.mark.parametrize(
    ("ruleset", "manner"),
    [*((ruleset, text) for ruleset in RULESETS), *zip(RULESETS * 3, MANNERS.values(), strict=False)],
    ids=[*RULESETS, *MANNERS],
)
def test_a_sound_log_passes_without_a_finding_or_a_question(tmp_path: Path, ruleset: str, manner: Manner) -> None:
    path = write(tmp_path / "result_0.txt", manner(closed(ruleset)))
    judgement = judge_log(path, ruleset, division="closed")
    assert official_verdict(path, ruleset) == "pass"
    assert (judgement.verdict, judgement.official.verdict) == ("pass", "pass")
    assert (judgement.breaches, judgement.questions) == ((), ())


@pytest.mark.parametrize(
    ("ruleset", "records", "asked"),
    [("5.0.0", closed(), True), ("4.1.0", closed(), True), ("4.0.0", closed(), False), ("5.0.0", demo(), False)],
    ids=["closed", "closed 4.1", "closed 4.0", "open"],
)
def test_a_missing_seed_is_noted_where_the_rules_ask_for_one(
    tmp_path: Path, ruleset: str, records: list[Record], asked: bool
) -> None:
    judgement = judged(tmp_path, [record for record in records if record["key"] != "seed"], ruleset)
    missing = {unchecked.rule for unchecked in judgement.not_applied if unchecked.asked}
    assert (judgement.verdict, "seed-value" in missing) == ("pass", asked)


def test_our_own_results_pass_and_lack_only_cleared_caches() -> None:
    judgements = [judge_log(log, "5.0.0") for log in find_logs(RESULTS)]
    assert [(one.verdict, one.breaches, one.questions) for one in judgements] == [("pass", (), ())] * 10
    assert {missing.rule for one in judgements for missing in one.not_applied if missing.asked} == {"cache-clear"}


def test_the_official_verdict_is_the_checkers_own_under_every_ruleset(tmp_path: Path) -> None:
    """Judge logs of two rounds under every ruleset; they fail most."""
    for logged in RULESETS[::9]:
        path = write(tmp_path / "result_0.txt", closed(logged))
        for ruleset in (*RULESETS, "5.1.0"):
            assert judge_log(path, ruleset).official.verdict == official_verdict(path, ruleset), (logged, ruleset)


def test_logs_with_lost_or_repeated_lines_get_the_official_verdict(tmp_path: Path) -> None:
    chance = random.Random(7)
    for number in range(20):
        records = chance.choice((closed, demo))()
        for _ in range(chance.randrange(1, 4)):
            index = chance.randrange(len(records))
            if chance.random() < 0.5:
                del records[index]
            else:
                records.insert(chance.randrange(len(records)), records[index])
        path = write(tmp_path / f"result_{number}.txt", records)
        assert judge_log(path, "5.0.0").official.verdict == official_verdict(path, "5.0.0")
