"""Read the MLPerf lines of a log: `:::MLLOG {json}`, whatever stands before the token, in any line-oriented text."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TOKEN = ":::MLLOG"


class CannotJudge(Exception):  # noqa: N818 - the verdict's name
    """A path that is no log: the message says what was found and what was expected."""


@dataclass(frozen=True)
class Event:
    """One MLPerf record with the number of its line in the file, from 1."""

    line: int
    key: str
    time_ms: float
    value: Any
    metadata: dict[str, Any] = field(default_factory=dict)


def read_events(path: Path) -> list[Event]:
    """All well-formed MLPerf records of a file, in file order.

    Raises CannotJudge if the file can't be read as text or holds no MLPerf line.
    """
    if not path.is_file():
        raise CannotJudge(f"{path}: is no regular file; give a log or a folder of logs")
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise CannotJudge(f"{path}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise CannotJudge(f"{path}: byte {error.start} is not UTF-8; expected a text log") from error
    events = list(_events(text))
    if not events:
        raise CannotJudge(f"{path}: found no {TOKEN} line; expected an MLPerf log")
    return events


def _events(text: str) -> Iterator[Event]:
    for number, line in enumerate(text.split("\n"), start=1):
        _, token, record = line.partition(TOKEN)
        if not token:
            continue
        try:
            content = json.loads(record)
            metadata = content.get("metadata")
            yield Event(
                line=number,
                key=content["key"],
                time_ms=float(content["time_ms"]),
                value=content.get("value"),
                metadata=metadata if isinstance(metadata, dict) else {},
            )
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            continue  # the official layer reports lines that don't parse
