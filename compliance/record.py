r"""MLPerf lines as the official checker reads them.

A line that holds `:::MLLOG ` is a record, whatever stands before the token; \n, \r and \r\n end a line, bytes are
latin-1, and where a line holds the token twice the last one counts. Lines are numbered by \n, as editors and grep do.
"""

import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import IO, Any, BinaryIO, NamedTuple, cast

from compliance.source import CannotJudge

TOKEN = ":::MLLOG"
RECORD_TOKEN = TOKEN + " "

LONGEST_RECORD = 1 << 20  # characters; published records have some hundreds
DEEPEST_RECORD = 64  # published records are nested 2 deep

_FIELDS = ("time_ms", "key", "value", "metadata")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


class Record(NamedTuple):
    """A record by the names that the official checker's rules use; `full_string` only says where it stands."""

    full_string: str
    timestamp: float
    key: Any
    value: dict[str, Any]
    lineno: int


class NoRecord(Exception):  # noqa: N818 - a fact about a line
    """A line with a token and no record; `crash` where the official checker ends in a traceback, not a message."""

    def __init__(self, reason: str, crash: bool = False) -> None:
        super().__init__(reason)
        self.crash = crash


def record_lines(stream: BinaryIO, watch: Callable[[int, str], None] | None = None) -> Iterator[tuple[int, str]]:
    """Number and text, from its last token on, of each line that holds a record.

    `watch` sees the number and all of each line that holds a token or a NUL. Raises CannotJudge on an endless record.
    """
    stream.seek(0)
    text = io.TextIOWrapper(cast(IO[bytes], stream), encoding="latin-1", newline="")
    number, pending = 1, ""
    try:
        while piece := text.readline(LONGEST_RECORD):
            complete = len(piece) < LONGEST_RECORD or piece[-1] in "\r\n"
            if pending or not complete:  # of a longer line, only what follows its last token matters
                piece = pending + piece
                at = piece.rfind(TOKEN)
                pending = piece[at:] if at >= 0 else piece[-len(RECORD_TOKEN) :]
                if at >= 0 and len(pending) > LONGEST_RECORD:
                    raise CannotJudge(f"found a record of more than {LONGEST_RECORD:,} characters", number)
                if not complete:
                    continue
                piece, pending = pending, ""
            if TOKEN in piece or "\0" in piece:
                if watch is not None:
                    watch(number, piece)
                at = piece.rfind(RECORD_TOKEN)
                if at >= 0:
                    yield number, piece[at:].strip()
            if piece[-1] == "\n":
                number += 1
    finally:
        text.detach()


def parse_record(line: int, text: str, repeated: list[str] | None = None) -> Record:
    """The record of a line; `repeated` gets the names of fields that it gives more than once.

    Raises NoRecord, and CannotJudge if it is nested too deep to be looked at.
    """
    if text.count("[") + text.count("{") > DEEPEST_RECORD and _depth(text) > DEEPEST_RECORD:
        raise CannotJudge(f"found a record nested more than {DEEPEST_RECORD} deep", line)

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        content = dict(items)
        if repeated is not None and len(content) != len(items):
            repeated.extend(name for name, count in Counter(name for name, _ in items).items() if count > 1)
        return content

    try:
        content = json.loads(text[len(RECORD_TOKEN) :], object_pairs_hook=None if repeated is None else pairs)
    except ValueError as error:
        raise NoRecord(f"no JSON: {error}") from error
    if not isinstance(content, dict):
        raise NoRecord(f"no object but {shown(content)}", crash=content is not None)
    missing = [name for name in _FIELDS if name not in content]
    if "time_ms" not in missing:
        time_ms = _time(content["time_ms"])  # before the others are missed: so it is with the official checker
    if missing:
        raise NoRecord(f"a record without {', '.join(missing)}", crash=True)
    value = {"value": content["value"], "metadata": content["metadata"]}
    return Record(f"line {line}", time_ms, content["key"], value, line)


def shown(value: Any, length: int = 60) -> str:
    """A value out of a log as one short line of ASCII: no control character of it reaches a terminal."""
    text = json.dumps(value)
    return text if len(text) <= length else text[: length - 3] + "..."


def _time(value: Any) -> float:
    try:
        return float(value)
    except ValueError as error:
        raise NoRecord(f"time_ms {shown(value)}, which is no number") from error
    except (TypeError, OverflowError) as error:
        raise NoRecord(f"time_ms {shown(value)}, which is no time", crash=True) from error


def _depth(text: str) -> int:
    depth = deepest = 0
    for character in _STRING.sub("", text):
        if character in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "]}":
            depth -= 1
    return deepest
