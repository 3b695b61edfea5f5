"""One log: its events for our rules, its records for the official checker, and what in it is neither.

The file is streamed, and what is kept of it is bounded: 200 MB of records must fit into 300 MB of memory.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from compliance.record import RECORD_TOKEN, TOKEN, NoRecord, Record, parse_record, record_lines
from compliance.source import CannotJudge, kind_of, open_plain

MOST_OF_A_KEY = 10_000  # events kept of one key; 4,096 ranks that log init_start each are real
_MOST_EVENTS = 100_000
_MOST_EVENT_TEXT = 16 << 20
_ALWAYS_KEPT = 3  # events of a key, however much others fill
_MOST_RECORDS_IN_MEMORY = 20_000
_MOST_RECORD_TEXT_IN_MEMORY = 8 << 20
_MOST_NOTES = 100  # of each kind
_PATH_KEYS = ("submission_division", "submission_benchmark")

__all__ = ["MOST_OF_A_KEY", "TOKEN", "CannotJudge", "Event", "Log", "open_log", "read_events"]


class Event(NamedTuple):
    """One MLPerf record with the number of its line in the file, from 1."""

    line: int
    key: str
    time_ms: float
    value: Any
    metadata: dict[str, Any] = {}  # noqa: RUF012 - never written to


class Note(NamedTuple):
    """Something about one line that is not as it should be."""

    line: int
    reason: str


class Log:
    """One log: its events, and what in it is no sound record.

    `broken` are records that don't parse; `crashes` those of them at which the official checker ends in a traceback;
    `ambiguous` records that name a field twice; `ignored` lines that neither this nor the official checker reads in
    full; `nul_lines` lines with NUL bytes, and whether the line is a record; `flooded` keys of which only the first
    MOST_OF_A_KEY events are kept; `submission` the first record of each key that the official checker makes paths from.
    Raises CannotJudge if the file can't be read safely or holds no MLPerf line.
    """

    def __init__(
        self, stream: BinaryIO, name: str = "-", ruled_keys: Callable[[], frozenset[str]] | None = None
    ) -> None:
        self._stream = stream
        self._ruled_keys = ruled_keys
        self._counts: Counter[str] = Counter()
        self._event_text = 0
        self.events: list[Event] = []
        self.broken: list[Note] = []
        self.crashes: list[Note] = []
        self.ambiguous: list[Note] = []
        self.ignored: list[Note] = []
        self.nul_lines: list[tuple[int, bool]] = []
        self.submission: dict[str, Record] = {}
        self._kept: list[Record] | None = []
        self._read(name)

    @property
    def flooded(self) -> list[str]:
        """Keys with more events than are kept."""
        return [key for key, count in self._counts.items() if count > MOST_OF_A_KEY]

    @property
    def in_memory(self) -> bool:
        """Whether `records` costs nothing; a large log is read again each time."""
        return self._kept is not None

    def records(self) -> Iterator[Record]:
        """All records that parse, in file order, as often as asked for; of a large log, those of `ruled_keys`."""
        if self._kept is not None:
            yield from self._kept
            return
        for line, text in record_lines(self._stream):
            try:
                yield parse_record(line, text)
            except NoRecord:
                continue

    def _read(self, name: str) -> None:
        seen, kept_text, ruled = False, 0, None
        for line, text in record_lines(self._stream, self._watch):
            seen = True
            repeated: list[str] = []
            try:
                record = parse_record(line, text, repeated)
            except NoRecord as problem:
                _note(self.broken, line, str(problem))
                if problem.crash:
                    _note(self.crashes, line, str(problem))
                continue
            if repeated:
                _note(self.ambiguous, line, f"fields given more than once: {', '.join(sorted(set(repeated)))[:80]}")
            if record.key in _PATH_KEYS:
                self.submission.setdefault(record.key, record)
            self._keep_event(record, len(text))
            if self._kept is None or (ruled is not None and not _is_of(ruled, record)):
                continue
            self._kept.append(record)
            kept_text += len(text)
            if len(self._kept) > _MOST_RECORDS_IN_MEMORY or kept_text > _MOST_RECORD_TEXT_IN_MEMORY:
                if ruled is None and self._ruled_keys is not None:
                    ruled, kept_text = self._ruled_keys(), 0
                    self._kept = [one for one in self._kept if _is_of(ruled, one)]
                else:
                    self._kept = None
        if not seen:
            self._stream.seek(0)
            found = kind_of(self._stream.read(4096))
            raise CannotJudge(f"{name}: found {found}; expected an MLPerf log, text with {TOKEN} lines")

    def _watch(self, line: int, text: str) -> None:
        """Look at every line, record or not, for what a log doesn't have."""
        tokens = text.count(TOKEN)
        if "\0" in text and len(self.nul_lines) < _MOST_NOTES:
            self.nul_lines.append((line, tokens > 0))
        if tokens > 1:
            _note(self.ignored, line, f"{TOKEN} {tokens} times in one line, of which only the last is read")
        elif tokens and RECORD_TOKEN not in text and text.partition(TOKEN)[2].strip():
            _note(self.ignored, line, f"no blank after {TOKEN}, so the line is not read")

    def _keep_event(self, record: Record, size: int) -> None:
        key = record.key
        if not isinstance(key, str):
            _note(self.ignored, record.lineno, f"a key that is no text: {type(key).__name__}")
            return
        if key not in self._counts and len(self._counts) >= MOST_OF_A_KEY:
            return
        self._counts[key] += 1
        count = self._counts[key]
        full = len(self.events) >= _MOST_EVENTS or self._event_text > _MOST_EVENT_TEXT
        if count > MOST_OF_A_KEY or (full and count > _ALWAYS_KEPT):
            self._counts[key] = max(count, MOST_OF_A_KEY + 1)
            return
        self._event_text += size
        metadata = record.value["metadata"]
        value = _as_utf8(record.value["value"])
        self.events.append(
            Event(record.lineno, key, record.timestamp, value, metadata if isinstance(metadata, dict) else {})
        )


@contextmanager
def open_log(path: Path) -> Iterator[Log]:
    """The log at a path, `-` for standard input. Raises CannotJudge."""
    with open_plain(path) as stream:
        yield Log(stream, str(path))


def read_events(path: Path) -> list[Event]:
    """The MLPerf events of a file, in file order; at most MOST_OF_A_KEY of each key.

    Raises CannotJudge if the file can't be read safely or holds no MLPerf line.
    """
    with open_log(path) as log:
        return log.events


def _is_of(keys: frozenset[str], record: Record) -> bool:
    return isinstance(record.key, str) and record.key in keys


def _note(notes: list[Note], line: int, reason: str) -> None:
    if len(notes) < _MOST_NOTES:
        notes.append(Note(line, reason))


def _as_utf8(value: Any) -> Any:
    """Text as its writer meant it; the official checker compares the latin-1 reading, which only matters to display."""
    if isinstance(value, str) and not value.isascii():
        try:
            return value.encode("latin-1").decode("utf-8")
        except UnicodeError:
            return value
    return value
