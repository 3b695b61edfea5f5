"""Ways to change the records of a log: each is a function of records, or makes one."""

import json
from collections.abc import Callable
from functools import wraps
from typing import Any

from tests.compliance.logs import Mutation, Record, at

TEN_MINUTES = 600_000


def mutation(change: Callable[..., list[Record] | None]) -> Callable[..., Mutation]:
    """Turn a function of records and more into a maker of functions of records, which it may change in place."""

    @wraps(change)
    def make(*arguments: Any, **named: Any) -> Mutation:
        return lambda records: change(records, *arguments, **named) or records

    return make


@mutation
def _with(records: list[Record], at_key: str, nth: int, **fields: Any) -> None:
    records[at(records, at_key, nth)].update(fields)


def both(*changes: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Change records, or a text, in turn."""

    def change(content: Any) -> Any:
        for one in changes:
            content = one(content)
        return content

    return change


def setting(key: str, value: Any, nth: int = 0) -> Mutation:
    return _with(key, nth, value=value)


def timed(key: str, time_ms: Any, nth: int = 0) -> Mutation:
    return _with(key, nth, time_ms=time_ms)


def renamed(key: str, name: Any, nth: int = 0, **fields: Any) -> Mutation:
    return _with(key, nth, key=name, **fields)


@mutation
def telling(records: list[Record], key: str, nth: int = 0, **metadata: Any) -> None:
    records[at(records, key, nth)]["metadata"].update(metadata)


@mutation
def without(records: list[Record], key: str, nth: int = 0) -> None:
    del records[at(records, key, nth)]


@mutation
def later(records: list[Record], key: str, milliseconds: float, nth: int = 0) -> None:
    records[at(records, key, nth)]["time_ms"] += milliseconds


@mutation
def again(records: list[Record], key: str, milliseconds: float = 0, **changed: Any) -> None:
    """Repeat a key's first record, right after it."""
    copy = json.loads(json.dumps(records[at(records, key)])) | changed
    copy["time_ms"] += milliseconds
    records.insert(at(records, key) + 1, copy)


def going_on(records: list[Record], count: int = 1) -> list[Record]:
    """Resume in the middle of the first block."""
    index = at(records, "block_start") + 1
    event = {**records[index - 1], "event_type": "POINT_IN_TIME", "key": "resumed", "value": count}
    return [*records[:index], event | {"metadata": {"samples": 4480, "after": "rank 3 was killed"}}, *records[index:]]


def no_result(value: Any) -> Mutation:
    return both(again("seed", value=value), renamed("seed", "not_a_result", 1))


@mutation
def moved(records: list[Record], key: str, before: str, nth: int = 0) -> None:
    """Put a record before another key, with a time of then."""
    record = records.pop(at(records, key, nth))
    index = at(records, before)
    records.insert(index, record | {"time_ms": records[index]["time_ms"]})


@mutation
def every(records: list[Record], key: str, change: Callable[[int, Record], None]) -> None:
    """Change the first, second, ... record of a key."""
    for number, record in enumerate(record for record in records if record["key"] == key):
        change(number, record)


def epoch_nums(number: Callable[[int], Any]) -> Mutation:
    """Count the samples of the first, second, ... evaluation otherwise."""
    return every("eval_accuracy", lambda index, one: one["metadata"].update(epoch_num=number(index)))


def shifted(key: str, field: str, more: Callable[[int], Any]) -> Mutation:
    """Add to what the first, second, ... record of a key counts."""
    return every(key, lambda index, one: one["metadata"].update({field: one["metadata"][field] + more(index)}))


def accuracies(value: Callable[[int, float], float]) -> Mutation:
    """Make accuracies from their place and value."""
    return every("eval_accuracy", lambda index, one: one.update(value=value(index, one["value"])))


def curve(value: Callable[[int], float]) -> Mutation:
    """Invent all accuracies but the last."""
    return accuracies(lambda index, one: one if index == 13 else value(index))


@mutation
def counts(records: list[Record], change: Callable[[int], Any]) -> None:
    """Count samples otherwise wherever metadata counts them."""
    for record in records:
        for field in {"epoch_num", "first_epoch_num", "epoch_count"} & set(record["metadata"]):
            record["metadata"][field] = change(record["metadata"][field])


def reaching_after_run_stop(records: list[Record]) -> list[Record]:
    record = records.pop(at(records, "eval_accuracy", -1))
    return [*records, record | {"time_ms": records[-1]["time_ms"] + 5}]


def two_runs(records: list[Record]) -> list[Record]:
    start = at(records, "run_start")
    return [*records, *(record | {"time_ms": record["time_ms"] + TEN_MINUTES} for record in records[start:])]


def evaluated_only(*evaluations: int) -> Mutation:
    """Leave out all but the first, second, ... evaluation."""
    return lambda records: [
        one for one in records
        if not one["key"].startswith("eval_")
        or one["metadata"].get("epoch_num", evaluations[0] * 150_080) // 150_080 in evaluations
    ]  # fmt: skip


none_reaching = setting("eval_accuracy", 0.7153, -1)


@mutation
def from_key(records: list[Record], key: str, milliseconds: float, nth: int = 0) -> None:
    """Make everything from a record on later."""
    for record in records[at(records, key, nth) :]:
        record["time_ms"] += milliseconds


@mutation
def scaled(records: list[Record], factor: float, since_start: bool = False) -> None:
    """Put all times into another unit; `since_start`: make the run faster or slower."""
    start = records[at(records, "run_start")]["time_ms"] if since_start else 0
    for record in records:
        record["time_ms"] = start + (record["time_ms"] - start) * factor


@mutation
def stopped_after(records: list[Record], evaluations: int) -> list[Record]:
    """Cut the run after some evaluations, and let the last of them reach the target."""
    cut = at(records, "eval_stop", evaluations - 1) + 1
    end = records[cut - 1]["time_ms"]
    kept = [*records[:cut], *(record | {"time_ms": end} for record in records[at(records, "train_samples") :])]
    return setting("train_samples", evaluations * 150_080)(setting("eval_accuracy", 0.7212, -1)(kept))
