r"""Read MLPerf lines as the official checker does.

A line with `:::MLLOG ` is a record; there may be any text before this token, and the last token in a line counts. \n,
\r and \r\n end a line, and bytes are latin-1. Lines are numbered by \n, as in editors and grep, or by \r in a file
without \n. For any input, reading takes time linear in the number of bytes.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any, BinaryIO, NamedTuple

from compliance.read.source import CannotJudge

TOKEN = ":::MLLOG"
RECORD_TOKEN = TOKEN + " "

LONGEST_RECORD = 1 << 20  # characters; published records have a few hundred
DEEPEST_RECORD = 64  # published records are nested two levels deep

_TOKEN = TOKEN.encode()
_BLOCK = 1 << 20
_LONGEST_TIME = 40  # characters of a time that is written as text; milliseconds since 1970 have 13 digits
_SHOWN = 60
"""Characters shown of a line that isn't a record, which may have a million."""
_FIELDS = ("time_ms", "key", "value", "metadata")
_LINE_END = re.compile(rb"[\r\n]")
# The quantifier is possessive and the closing quote is optional, so no text makes the search try a character twice.
_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[\]{}]', re.DOTALL)


_twice_named: set[str] = set()


def _watched(items: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(items)
    if len(content) != len(items):
        names = Counter(name for name, _ in items)
        _twice_named.update(name for name, count in names.items() if count > 1)
    return content


# Made once, because making a decoder takes as long as reading a record.
_DECODER = json.JSONDecoder(object_pairs_hook=_watched)


class Record(NamedTuple):
    """A record, with the field names that the official checker's rules use; `full_string` has only the line number."""

    full_string: str
    timestamp: float
    key: Any
    value: dict[str, Any]
    lineno: int
    oddity: str | None = None  # its time_ms, if that isn't a finite number
    has_time: bool = True  # whether its time_ms is a time, as a number or as text
    repeated: Sequence[str] = ()  # names of fields that occur more than once


class NoRecord(Exception):  # noqa: N818 - describes a line
    """A line with a token but no record; `crash` is true if the official checker crashes on it."""

    def __init__(self, reason: str, crash: bool = False) -> None:
        super().__init__(reason)
        self.crash = crash


def _unwatched(line: int, text: str) -> None:
    """Do nothing, because most readers need only the records."""


def record_lines(stream: BinaryIO, watch: Callable[[int, str], None] = _unwatched) -> Iterator[tuple[int, str]]:
    """Yield the number of each line with a record, and its text from the last token on.

    `watch` receives the number and text of each line with a token, and of the first other line with a NUL byte.
    Raises CannotJudge for a record that is too long.
    """
    number = 1
    hole_seen = False
    line_end = b"\n"
    for block in _blocks(stream):
        done = 0
        if number == 1 and b"\n" not in block and b"\r" in block:
            line_end = b"\r"  # as editors do in a file without \n
        while done < len(block):
            token = block.find(_TOKEN, done)
            start = len(block)
            if token >= 0:
                start = max(block.rfind(b"\n", done, token), block.rfind(b"\r", done, token), done - 1) + 1
            if not hole_seen:
                hole = block.find(b"\0", done, start)
                if hole >= 0:
                    watch(number + block.count(line_end, done, hole), "\0")
                    hole_seen = True
            number += block.count(line_end, done, start)
            if token < 0:
                break
            ending = _LINE_END.search(block, token)
            done = ending.start() if ending else len(block)
            line = block[start:done].decode("latin-1")
            if len(line) - line.rfind(TOKEN) > LONGEST_RECORD:
                raise CannotJudge(f"found a record of more than {LONGEST_RECORD:,} characters", number)
            watch(number, line)
            record_at = line.rfind(RECORD_TOKEN)
            if record_at >= 0:
                yield number, line[record_at:].strip()


def _blocks(stream: BinaryIO) -> Iterator[bytes]:
    """Yield the stream in blocks that end with a line; a very long line without a record comes in parts."""
    stream.seek(0)
    pending: list[bytes] = []
    waiting = 0
    while block := stream.read(_BLOCK):
        # A \r at the end may be half of \r\n; the bytes after the last line end belong to the next block.
        cut = max(block.rfind(b"\n"), block.rfind(b"\r", 0, len(block) - 1)) + 1
        if cut:
            yield b"".join((*pending, block[:cut]))
            pending = [block[cut:]]
            waiting = len(block) - cut
            continue
        pending.append(block)
        waiting += len(block)
        if waiting > 2 * LONGEST_RECORD:
            line = b"".join(pending)
            token = line.rfind(_TOKEN)
            if token >= 0 and len(line) - token > LONGEST_RECORD:
                yield line  # record_lines refuses it
            kept = line[token:] if token >= 0 else line[-len(RECORD_TOKEN) :]
            if b"\0" in line[: len(line) - len(kept)]:
                yield b"\0"
            pending = [kept]
            waiting = len(kept)
    if waiting:
        yield b"".join(pending)


def parse_record(line: int, text: str) -> Record:
    """Return the record in a line. Raises NoRecord, and CannotJudge if it is nested too deep."""
    if text.count("[") + text.count("{") > DEEPEST_RECORD and depth_of(text) > DEEPEST_RECORD:
        raise CannotJudge(f"found a record nested more than {DEEPEST_RECORD} levels deep", line)

    try:
        content, repeated = decoded_json(text[len(RECORD_TOKEN) :])
    except ValueError as error:
        raise NoRecord(f"a line that isn't JSON: {error}") from error
    if not isinstance(content, dict):
        start = len(RECORD_TOKEN)
        raise NoRecord(f"a line that isn't a JSON object: {text[start : start + _SHOWN]}", crash=content is not None)
    missing = [name for name in _FIELDS if name not in content]
    if "time_ms" not in missing:
        time_ms = _time(content["time_ms"])  # first, as in the official checker
    if missing:
        raise NoRecord(f"a record without {', '.join(missing)}", crash=True)
    is_number = type(content["time_ms"]) in (int, float) and math.isfinite(time_ms)
    odd = None if is_number else shown(content["time_ms"])
    has_time = is_number or _is_written_time(content["time_ms"], time_ms)
    value = {"value": content["value"], "metadata": content["metadata"]}
    return Record(f"line {line}", time_ms, content["key"], value, line, odd, has_time, repeated)


def decoded_json(text: str) -> tuple[Any, Sequence[str]]:
    """Return the content of a JSON text, and the names of fields that occur twice in an object. Raises ValueError."""
    _twice_named.clear()
    return _DECODER.decode(text), tuple(sorted(_twice_named))


def weight(text: str) -> int:
    """Return an upper bound for the bytes of a parsed JSON text: 4 per character, 100 per value, list or object."""
    return 4 * len(text) + 100 * (text.count(",") + text.count("[") + text.count("{"))


def shown(value: Any, length: int = 60) -> str:
    """Return a value from a log as one short line of ASCII, so that no control character reaches a terminal."""
    text = json.dumps(value)
    return text if len(text) <= length else text[: length - 3] + "..."


def shown_values(values: Iterable[Any], length: int = 60) -> str:
    """Return the distinct values of a key as one short line: a single value as it is, and none as `missing`."""
    different = distinct(values)
    if not different:
        return "missing"
    return shown(plain(different if len(different) > 1 else different[0]), length)


def as_json(content: Any) -> str:
    """Return JSON that strict parsers accept: NaN and infinities become null, and lone surrogates become `?`."""
    text = json.dumps(content, ensure_ascii=False, default=asdict).encode(errors="replace")
    return json.dumps(json.loads(text, parse_constant=lambda _: None), indent=2)


def answer_json(command: str, content: Any) -> str:
    """Return a command's output for `--json`: an object that names the command, or a list of such objects."""
    plain_content = json.loads(as_json(content))
    if isinstance(plain_content, list):
        return as_json([_named(command, item) for item in plain_content])
    return as_json(_named(command, plain_content))


def error_json(command: str, message: str, exit_code: int) -> str:
    """Return the `--json` output for a mistake; standard error shows the same message."""
    return answer_json(command, {"error": {"message": message.strip(), "exit_code": exit_code}})


def _named(command: str, content: Any) -> Any:
    return {"command": command, **content} if isinstance(content, dict) else content


def distinct(values: Iterable[Any]) -> list[Any]:
    """Return the distinct values, in their order: 448 and 448.0 count as one value, and so do two NaN."""
    different: dict[str, Any] = {}
    for value in values:
        different.setdefault(shown(plain(value), 10_000), value)
    return list(different.values())


def plain(value: Any) -> Any:
    """Return whole numbers as integers, and others to seven digits, which a 32-bit float has; also within lists."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return int(value) if value.is_integer() else float(f"{value:.7g}")
    return value


def printable(text: str) -> str:
    r"""Return text with escapes, such as \x1b, for control characters and for bytes that aren't UTF-8.

    File names and values in logs are untrusted, and could steer a terminal.
    """
    return "".join(character if character.isprintable() else _escaped(character) for character in text)


def _escaped(character: str) -> str:
    if "\udc80" <= character <= "\udcff":  # how Python represents a byte of a name that isn't UTF-8
        return f"\\x{ord(character) - 0xDC00:02x}"
    return character.encode("unicode_escape", "surrogatepass").decode()


def _time(value: Any) -> float:
    try:
        return float(value)
    except ValueError as error:
        raise NoRecord(f"time_ms {shown(value)}, which isn't a number") from error
    except (TypeError, OverflowError) as error:
        raise NoRecord(f"time_ms {shown(value)}, which isn't a time", crash=True) from error


def _is_written_time(value: Any, time_ms: float) -> bool:
    """Return whether a value that float() converts is a time, written as text; float() also converts true."""
    return isinstance(value, str) and len(value) <= _LONGEST_TIME and math.isfinite(time_ms)


def depth_of(text: str) -> int:
    """Return the nesting depth of lists and objects in a text, valid JSON or not."""
    depth = deepest = 0
    for match in _STRING_OR_BRACKET.finditer(text):
        character = match[0]
        if character in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "]}":
            depth -= 1
    return deepest
