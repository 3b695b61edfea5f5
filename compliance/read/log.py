"""Read one log: its events for our rules, its records for the official checker, and its faulty lines.

The file is streamed and the kept part is bounded: 200 MB of anything take less than 300 MB of memory and 60 s.
Beyond a bound on what our rules need, the log can't be judged: a part of it could mislead the rules.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from compliance.read.record import RECORD_TOKEN, TOKEN, NoRecord, Record, parse_record, record_lines, weight
from compliance.read.source import CannotJudge, likely_kind, open_plain

MOST_OF_A_KEY = 10_000  # events kept per key; in a real log 4,096 ranks each log init_start
MOST_RECORDS = 1_000_000  # published logs have at most some thousands
_MOST_KEYS = 10_000
_LONGEST_KEY = 256  # characters
# Weights in bytes, see `record.weight`. A usual record weighs 2,000 and uses half of that.
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

    `notes`: numbers and faults of lines by the rule that reports them (`rules.records`), at most 100 of each; under
    `crash`, those on which the official checker ends in a traceback. `flooded`: keys with more than MOST_OF_A_KEY
    events (the first are kept).
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
        """Return the keys with more events than are kept."""
        return [key for key, count in self._counts.items() if count > MOST_OF_A_KEY]

    @property
    def in_memory(self) -> bool:
        """Return whether `records` costs nothing; a large log is read again each time."""
        return self._kept is not None

    def records(self) -> Iterator[Record]:
        """Yield all records that parse, in file order, at each call."""
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
                self._note("time-number", line, f"time_ms {record.oddity}")
            self._keep_event(record, weighs)
            if self._kept is not None:
                self._kept.append(record)
                kept_weight += weighs
                if len(self._kept) > _MOST_RECORDS_IN_MEMORY or kept_weight > _HEAVIEST_RECORDS_IN_MEMORY:
                    self._kept = None
        if not seen:
            self._stream.seek(0)
            kind = likely_kind(self._stream.read(4096))
            raise CannotJudge(f"{name}: found {kind}; expected an MLPerf log, text with {TOKEN} lines")

    def _weighed(self, line: int, text: str) -> int:
        """Return the record's weight before parsing it. Raises CannotJudge if long records together weigh too much."""
        weighs = weight(text)
        if weighs > _HEAVY_RECORD:
            self._heavy_weight += weighs
            if self._heavy_weight > _HEAVIEST_RECORDS:
                raise CannotJudge(
                    f"found long records of more than {_HEAVIEST_RECORDS >> 20} MiB; expected short ones", line
                )
        return weighs

    def _watch(self, line: int, text: str) -> None:
        """Note faults of a line with a token, and NUL bytes."""
        tokens = text.count(TOKEN)
        if tokens:
            self._lines += 1
        if self._lines > MOST_RECORDS:
            raise CannotJudge(f"found more than {MOST_RECORDS:,} lines with {TOKEN}", line)
        if "\0" in text:
            self._note("text" if tokens else "text-hole", line, "NUL bytes, as in a file with a hole")
        if tokens > 1:
            self._note("record-read", line, f"{TOKEN} {tokens} times in one line; only the last is read")
        elif tokens and RECORD_TOKEN not in text and text.partition(TOKEN)[2].strip():
            self._note("record-read", line, f"no blank after {TOKEN}, so the line is not read")

    def _keep_event(self, record: Record, weighs: int) -> None:
        key = record.key
        if not isinstance(key, str) or len(key) > _LONGEST_KEY:
            oddity = (
                f"of {len(key):,} characters" if isinstance(key, str) else f"that is not text: {type(key).__name__}"
            )
            self._note("record-read", record.lineno, f"a key {oddity}")
            return
        if key not in self._counts and len(self._counts) >= _MOST_KEYS:
            raise CannotJudge(f"found more than {_MOST_KEYS:,} keys", record.lineno)
        self._counts[key] += 1
        if self._counts[key] > MOST_OF_A_KEY:
            return
        self._event_weight += weighs
        if self._event_weight > _HEAVIEST_EVENTS:
            raise CannotJudge(
                "found records of more than 128 MiB; expected at most some thousands of short ones", record.lineno
            )
        value, metadata = _as_utf8(record.value["value"]), record.value["metadata"]
        fields = metadata if isinstance(metadata, dict) else {}
        self.events.append(Event(record.lineno, key, record.timestamp, value, fields))

    def _note(self, rule: str, line: int, reason: str) -> None:
        if len(self.notes[rule]) < _MOST_NOTES:
            self.notes[rule].append((line, reason))


def read_events(path: Path) -> list[Event]:
    """Return the MLPerf events of a file, in file order; at most MOST_OF_A_KEY per key.

    Raises CannotJudge if the file can't be read safely or has no MLPerf line.
    """
    with open_plain(path) as stream:
        return Log(stream, str(path)).events


def _as_utf8(value: Any) -> Any:
    """Return text as its writer meant it, for display; the official checker compares the latin-1 reading."""
    if isinstance(value, str) and not value.isascii():
        try:
            return value.encode("latin-1").decode("utf-8")
        except UnicodeError:
            return value
    return value
