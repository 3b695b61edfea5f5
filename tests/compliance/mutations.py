"""The one way to change a log, in memory or in a file: mutations of its records.

`nth` counts the records of a key from 0; -1 is the last.
"""

import json
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

from tests.compliance.logs import Record, at, line, records_of, text, write

Mutation = Callable[[list[Any]], list[Any]]
"""Changes the lines of a log, in place or not, and returns them."""


def changed(content: str, *changes: Mutation) -> str:
    """Return a log after changes of its records, in turn."""
    after = text(in_turn(*changes)(records_of(content)))
    assert after != content, "the changes change nothing"
    return after


def change_file(log: Path, *changes: Mutation) -> None:
    """Change the records of a log's file, in turn."""
    write(log, changed(log.read_text(), *changes))


def mutation(change: Callable[..., None]) -> Callable[..., Mutation]:
    """Turn a function that changes records in place into a maker of mutations, whose names tests show."""

    @wraps(change)
    def make(*arguments: Any, **options: Any) -> Mutation:
        def mutated(records: list[Any]) -> list[Any]:
            change(records, *arguments, **options)
            return records

        mutated.__name__ = " ".join(map(str, [change.__name__, *arguments, *options.values()]))
        return mutated

    return make


def in_turn(*changes: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Change records, or a text, in turn."""

    def change(content: Any) -> Any:
        for step in changes:
            content = step(content)
        return content

    return change


@mutation
def setting(records: list[Record], key: str, value: Any, nth: int = 0) -> None:
    """Give a record another value."""
    records[at(records, key, nth)]["value"] = value


@mutation
def field_of(records: list[Record], key: str, field: str, value: Any) -> None:
    """Give a field of a record's value, an object, another value."""
    records[at(records, key)]["value"][field] = value


@mutation
def metadata_of(records: list[Record], key: str, field: str, value: Any, nth: int = 0) -> None:
    """Give a field of a record's metadata another value."""
    records[at(records, key, nth)]["metadata"][field] = value


@mutation
def timed(records: list[Record], key: str, time_ms: Any, nth: int = 0) -> None:
    """Give a record another time."""
    records[at(records, key, nth)]["time_ms"] = time_ms


@mutation
def renamed(records: list[Record], key: str, name: Any, nth: int = 0, **fields: Any) -> None:
    """Give a record another key, and other fields if any are named."""
    records[at(records, key, nth)].update(fields, key=name)


@mutation
def added(
    records: list[Any], before: str, time_ms: int, key: str, value: Any = None, metadata: Record | None = None
) -> None:
    """Add a record before the first one of the key `before`."""
    record = {"time_ms": time_ms, "key": key, "value": value, "metadata": metadata or {}}
    records.insert(at(records, before), record)


@mutation
def appended(records: list[Any], key: str, value: Any = None, metadata: Record | None = None) -> None:
    """Add a record at the end, at the time of the last one."""
    records.append({**records[-1], "key": key, "value": value, "metadata": metadata or {}})


@mutation
def added_line(records: list[Any], before: str, content: str) -> None:
    """Add a line that isn't a record before the first record of a key."""
    records.insert(at(records, before), content)


@mutation
def damaged(records: list[Any], key: str, old: str, new: str) -> None:
    """Replace a part of the line of a key's first record."""
    place = at(records, key)
    content = line(records[place])
    assert content.count(old) == 1, (key, old)
    records[place] = content.replace(old, new)


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
    """Move a record in front of another key, and give it that time."""
    record = records.pop(at(records, key, nth))
    index = at(records, before)
    records.insert(index, record | {"time_ms": records[index]["time_ms"]})


@mutation
def every(records: list[Record], key: str, change: Callable[[int, Record], None]) -> None:
    """Change the first, second, ... record of a key."""
    for number, record in enumerate(record for record in records if record["key"] == key):
        change(number, record)


def shifted(key: str, field: str, more: Callable[[int], Any]) -> Mutation:
    """Add to the count in the first, second, ... record of a key."""
    return every(key, lambda index, one: one["metadata"].update({field: one["metadata"][field] + more(index)}))


@mutation
def counts(records: list[Record], change: Callable[[int], Any]) -> None:
    """Change the counts of samples wherever metadata has them."""
    for record in records:
        for field in {"epoch_num", "first_epoch_num", "epoch_count"} & set(record["metadata"]):
            record["metadata"][field] = change(record["metadata"][field])


@mutation
def from_key(records: list[Record], key: str, milliseconds: float, nth: int = 0) -> None:
    """Delay a record and everything after it."""
    for record in records[at(records, key, nth) :]:
        record["time_ms"] += milliseconds
