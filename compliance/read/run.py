"""Derive the times, samples and accuracies of one run from its log, without judging them."""

import math
from collections import defaultdict
from contextlib import suppress
from typing import Any, NamedTuple

from compliance.read.log import Event
from compliance.read.record import shown


class LoggedEvaluation(NamedTuple):
    """One measured accuracy, with its training samples (MLPerf's epoch_num for BERT), its time and its line."""

    samples: float | None
    accuracy: float
    time_ms: float
    line: int = 0


class RunFacts:
    """Facts about a run; each is None if the log doesn't state it."""

    def __init__(self, events: list[Event]) -> None:
        self._events = events
        self._by_key: dict[str, list[Event]] = defaultdict(list)
        for event in events:
            self._by_key[event.key].append(event)
        self.benchmark = self._text("submission_benchmark")
        self.division = self._text("submission_division")
        self.platform = self._text("submission_platform")
        self.global_batch_size = self.value("global_batch_size")
        self.seed = self.value("seed")
        self.started_ms = self._time("run_start")
        self.stopped_ms = self._time("run_stop")
        stop = self.first("run_stop")
        self.status = stop.metadata.get("status") if stop else None
        self.evaluations = [
            LoggedEvaluation(number(event.metadata.get("epoch_num")), accuracy, event.time_ms, event.line)
            for event in self.all("eval_accuracy")
            if (accuracy := number(event.value)) is not None
        ]

    def all(self, key: str) -> list[Event]:
        """Return all events of a key, in file order."""
        return self._by_key.get(key, [])

    def first(self, key: str) -> Event | None:
        """Return the first event of a key."""
        return next(iter(self.all(key)), None)

    def value(self, key: str) -> Any:
        """Return the value of the first event of a key."""
        first = self.first(key)
        return first.value if first else None

    def keys(self) -> set[str]:
        """Return the keys that occur in the log."""
        return set(self._by_key)

    def events(self) -> list[Event]:
        """Return all events."""
        return self._events

    @property
    def is_fine(self) -> bool:
        """Return whether times are finer than whole seconds, which may repeat by chance."""
        return any(event.time_ms % 1e3 for event in self._events)

    def only(self, keys: frozenset[str], most: int) -> "RunFacts":
        """Return the facts with at most `most` events of these keys only, so that a package's runs fit into memory."""
        events = [event for key in keys for event in self.all(key)[:most]]
        return RunFacts(sorted(events, key=lambda event: event.line))

    @property
    def time_to_train_s(self) -> float | None:
        """Return the seconds from run_start to run_stop: the score."""
        if self.started_ms is None or self.stopped_ms is None:
            return None
        return (self.stopped_ms - self.started_ms) / 1e3

    @property
    def course(self) -> list[tuple[float, float]]:
        """Return the seconds since run_start and the accuracy of each evaluation; none in a log without run_start."""
        if self.started_ms is None:
            return []
        return [((measured.time_ms - self.started_ms) / 1e3, measured.accuracy) for measured in self.evaluations]

    @property
    def best(self) -> LoggedEvaluation | None:
        """Return the first evaluation with the highest accuracy."""
        return max(self.evaluations, key=lambda evaluation: evaluation.accuracy, default=None)

    @property
    def best_accuracy(self) -> float | None:
        """Return the highest measured accuracy."""
        return self.best.accuracy if self.best else None

    @property
    def samples(self) -> float | None:
        """Return the training samples at the last evaluation: a successful run's samples to converge."""
        return self.evaluations[-1].samples if self.evaluations else None

    @property
    def samples_per_s(self) -> float | None:
        """Return the training samples per second over the whole timed run."""
        return self.samples / self.time_to_train_s if self.samples and self.time_to_train_s else None

    @property
    def not_a_result(self) -> str | None:
        """Return the value of not_a_result, or None without that event."""
        event = self.first("not_a_result")
        if event is None:
            return None
        return event.value if isinstance(event.value, str) and event.value else shown(event.value)

    def _text(self, key: str) -> str | None:
        value = self.value(key)
        return value if isinstance(value, str) else None

    def _time(self, key: str) -> float | None:
        return next((event.time_ms for event in self.all(key) if math.isfinite(event.time_ms)), None)


def number(value: Any) -> float | None:
    """Return a number of at most 1e100, so that the product of three stays finite; None for true, false and others."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) <= 1e100 else None  # the comparison is false for NaN


def numeric(value: Any) -> float | None:
    """Return a number, which may be written as text, or None."""
    if isinstance(value, str) and value.isascii():  # float() would also accept digits of other scripts
        with suppress(ValueError):
            return number(float(value[:100]))
    return number(value)


def alone(value: Any) -> Any:
    """Return the only element of a list, as some loggers write single values, or else the value itself."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def as_integer(value: Any) -> int | None:
    """Return a value as a whole number, whatever its type or spelling, or None."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and value.isascii():
        for base in (10, 0):  # 0 accepts 0x10 and the like
            with suppress(ValueError):
                return int(value, base)
    whole_or_not = numeric(value)
    if whole_or_not is None or not whole_or_not.is_integer():
        return None
    return int(whole_or_not)
