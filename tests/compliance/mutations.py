"""Ways to change the records of a log: each returns the changed records, or a function that does."""

import json
from collections.abc import Callable
from typing import Any

from tests.compliance.logs import (
    Mutation,
    Record,
    at,
    with_own_keys,
)

TEN_MINUTES = 600_000


def _with(at_key: str, nth: int, **fields: Any) -> Mutation:
    """Replace fields of a key's nth record."""

    def change(records: list[Record]) -> list[Record]:
        records[at(records, at_key, nth)].update(fields)
        return records

    return change


def setting(key: str, value: Any, nth: int = 0) -> Mutation:
    return _with(key, nth, value=value)


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
    return _with(key, nth, time_ms=time_ms)


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
    return _with(key, nth, key=name)


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
    """Cut the run after some evaluations, and let the last of them reach the target."""

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
