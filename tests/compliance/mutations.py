"""Ways to change the records of a log: each is a function of records, or makes one."""

import json
from collections.abc import Callable
from functools import wraps
from typing import Any

from tests.compliance.logs import Mutation, Record, at


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


def shifted(key: str, field: str, more: Callable[[int], Any]) -> Mutation:
    """Add to what the first, second, ... record of a key counts."""
    return every(key, lambda index, one: one["metadata"].update({field: one["metadata"][field] + more(index)}))


def accuracies(value: Callable[[int, float], float]) -> Mutation:
    """Make accuracies from their place and value."""
    return every("eval_accuracy", lambda index, one: one.update(value=value(index, one["value"])))


@mutation
def counts(records: list[Record], change: Callable[[int], Any]) -> None:
    """Count samples otherwise wherever metadata counts them."""
    for record in records:
        for field in {"epoch_num", "first_epoch_num", "epoch_count"} & set(record["metadata"]):
            record["metadata"][field] = change(record["metadata"][field])


@mutation
def from_key(records: list[Record], key: str, milliseconds: float, nth: int = 0) -> None:
    """Make everything from a record on later."""
    for record in records[at(records, key, nth) :]:
        record["time_ms"] += milliseconds
