"""Read one log: its events for our rules, its records for the official checker, and its faulty lines.

The file is streamed, and the part that is kept is bounded: 200 MB of anything take less than 300 MB of memory and 60 s.
A log with more events than our rules can keep can't be judged, because a part of it could mislead the rules.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from compliance.read.record import RECORD_TOKEN, TOKEN, NoRecord, Record, parse_record, record_lines, weight
from compliance.read.source import CannotJudge, likely_kind, open_plain

MOST_OF_A_KEY = 10_000  # events kept per key; in a real log 4,096 ranks each log init_start
MOST_RECORDS = 1_000_000  # published logs have a few thousand at most
_MOST_KEYS = 10_000
_LONGEST_KEY = 256  # characters
# Weights are in bytes (see `record.weight`). A usual record weighs 2,000, and takes half of that.
_HEAVY_RECORD = 32 << 10
_HEAVIEST_RECORDS = 24 << 20  # all heavy records of a log together
_HEAVIEST_EVENTS = 128 << 20
_HEAVIEST_RECORDS_IN_MEMORY = 48 << 20
_MOST_RECORDS_IN_MEMORY = 20_000
_MOST_NOTES = 100  # of each kind

__all__ = ["MOST_OF_A_KEY", "TOKEN", "CannotJudge", "Event", "Log", "read_events"]


class Event(NamedTuple):
    """One MLPerf record and its line in the file, counted from 1."""

    line: int
    key: str
    time_ms: float
    value: Any
    metadata: dict[str, Any] = {}  # noqa: RUF012 - never written to


class Log:
    """One log: its events and its faulty lines.

    `notes` has the numbers and faults of lines, at most 100 under each name that `rules.records` reports; `crash` has
    the lines on which the official checker crashes. `flooded` has the keys with more than MOST_OF_A_KEY
    events, of which the first are kept.
    Raises CannotJudge if the file can't be read safely, exceeds a limit, or has no MLPerf line.
    """

    def __init__(self, stream: BinaryIO, name: str = "-") -> None:
        self._stream = stream
        self._counts: Counter[str] = Counter()
        self._lines = 0
        self._event_weight = 0
        self._heavy_weight = 0
        self.events: list[Event] = []
        self.notes: dict[str, list[tuple[int, str]]] = defaultdict(list)
        self._kept: list[Record] | None = []
        self._read(name)

    @property
    def flooded(self) -> list[str]:
        """Return the keys that have more events than are kept."""
        return [key for key, count in self._counts.items() if count > MOST_OF_A_KEY]

    @property
    def in_memory(self) -> bool:
        """Return whether the records are in memory; `records` reads a larger log again each time."""
        return self._kept is not None

    def records(self) -> Iterator[Record]:
        """Yield all records that can be parsed, in file order."""
        if self._kept is not None:
            yield from self._kept
            return
        for line, text in record_lines(self._stream):
            try:
                yield parse_record(line, text)
            except NoRecord:
                continue

    def _read(self, name: str) -> None:
        seen = False
        kept_weight = 0
        for line, text in record_lines(self._stream, self._watch):
            seen = True
            weighs = self._weighed(line, text)
            try:
                record = parse_record(line, text)
            except NoRecord as problem:
                self._note("record", line, str(problem))
                if problem.crash:
                    self._note("crash", line, str(problem))
                continue
            if record.repeated:
                names = ", ".join(record.repeated[:5])
                self._note("record-unambiguous", line, f"fields given more than once: {names[:80]}")
            if record.oddity is not None:
                self._note("time-text" if record.has_time else "time-number", line, f"time_ms {record.oddity}")
            self._keep_event(record, weighs)
            if self._kept is not None:
                self._kept.append(record)
                kept_weight += weighs
                if len(self._kept) > _MOST_RECORDS_IN_MEMORY or kept_weight > _HEAVIEST_RECORDS_IN_MEMORY:
                    self._kept = None
        if not seen:
            self._stream.seek(0)
            kind = likely_kind(self._stream.read(4096))
            raise CannotJudge(f"{name}: found {kind}; expected an MLPerf log, that is, text with {TOKEN} lines")

    def _weighed(self, line: int, text: str) -> int:
        """Return a record's weight before it is parsed. Raises CannotJudge if all long records weigh too much."""
        weighs = weight(text)
        if weighs > _HEAVY_RECORD:
            self._heavy_weight += weighs
            if self._heavy_weight > _HEAVIEST_RECORDS:
                raise CannotJudge(
                    f"found more than {_HEAVIEST_RECORDS >> 20} MiB of long records; expected short ones", line
                )
        return weighs

    def _watch(self, line: int, text: str) -> None:
        """Note NUL bytes, and the faults of a line with a token."""
        tokens = text.count(TOKEN)
        if tokens:
            self._lines += 1
        if self._lines > MOST_RECORDS:
            raise CannotJudge(f"found more than {MOST_RECORDS:,} lines with {TOKEN}", line)
        if "\0" in text:
            self._note("text" if tokens else "text-hole", line, "NUL bytes, as in a file with a hole")
        if tokens > 1:
            self._note("record-read", line, f"{TOKEN} occurs {tokens} times; the parser reads only the last record")
        elif tokens and RECORD_TOKEN not in text and text.partition(TOKEN)[2].strip():
            self._note("record-read", line, f"there is no space after {TOKEN}, so the parser skips the line")

    def _keep_event(self, record: Record, weighs: int) -> None:
        key = record.key
        if not isinstance(key, str) or len(key) > _LONGEST_KEY:
            oddity = f"has {len(key):,} characters" if isinstance(key, str) else f"is not text: {type(key).__name__}"
            self._note("record-read", record.lineno, f"the key {oddity}, so the judge skips the record")
            return
        if key not in self._counts and len(self._counts) >= _MOST_KEYS:
            raise CannotJudge(f"found more than {_MOST_KEYS:,} different keys", record.lineno)
        self._counts[key] += 1
        if self._counts[key] > MOST_OF_A_KEY:
            return
        self._event_weight += weighs
        if self._event_weight > _HEAVIEST_EVENTS:
            raise CannotJudge("found more than 128 MiB of records; expected a few thousand short ones", record.lineno)
        value, metadata = _as_utf8(record.value["value"]), record.value["metadata"]
        fields = metadata if isinstance(metadata, dict) else {}
        self.events.append(Event(record.lineno, key, record.timestamp, value, fields))

    def _note(self, rule: str, line: int, reason: str) -> None:
        if len(self.notes[rule]) < _MOST_NOTES:
            self.notes[rule].append((line, reason))


def read_events(path: Path) -> list[Event]:
    """Return the MLPerf events in a file, in file order and at most MOST_OF_A_KEY per key.

    Raises CannotJudge if the file can't be read safely or has no MLPerf line.
    """
    with open_plain(path) as stream:
        return Log(stream, str(path)).events


def _as_utf8(value: Any) -> Any:
    """Return text as its writer meant it, for display; the official checker compares the text as latin-1."""
    if isinstance(value, str) and not value.isascii():
        try:
            return value.encode("latin-1").decode("utf-8")
        except UnicodeError:
            return value
    return value
