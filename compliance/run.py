"""What one log says of its run: times, samples, accuracies. Derived numbers only; judging is elsewhere."""

import math
from dataclasses import dataclass
from typing import Any

from compliance.log import Event


@dataclass(frozen=True)
class Evaluation:
    """One measured accuracy: after how many training samples (MLPerf's epoch_num for BERT), and when."""

    samples: float | None
    accuracy: float
    time_ms: float


class RunFacts:
    """Facts of a run, each None where the log doesn't tell it."""

    def __init__(self, events: list[Event]) -> None:
        self._events = events
        self.benchmark = self._text("submission_benchmark")
        self.division = self._text("submission_division")
        self.platform = self._text("submission_platform")
        self.global_batch_size = self._value("global_batch_size")
        self.seed = self._value("seed")
        self.started_ms = self._time("run_start")
        self.stopped_ms = self._time("run_stop")
        stop = next((event for event in events if event.key == "run_stop"), None)
        self.status = stop.metadata.get("status") if stop else None
        self.evaluations = [
            Evaluation(_number(event.metadata.get("epoch_num")), accuracy, event.time_ms)
            for event in events
            if event.key == "eval_accuracy" and (accuracy := _number(event.value)) is not None
        ]

    @property
    def time_to_train_s(self) -> float | None:
        """Seconds from run_start to run_stop: the score."""
        if self.started_ms is None or self.stopped_ms is None:
            return None
        return (self.stopped_ms - self.started_ms) / 1e3

    @property
    def best_accuracy(self) -> float | None:
        """Highest accuracy that was measured."""
        return max((evaluation.accuracy for evaluation in self.evaluations), default=None)

    @property
    def samples(self) -> float | None:
        """Training samples at the last evaluation: the samples to converge of a run that reached its target."""
        return self.evaluations[-1].samples if self.evaluations else None

    @property
    def samples_per_s(self) -> float | None:
        """Training samples over the whole timed run."""
        return self.samples / self.time_to_train_s if self.samples and self.time_to_train_s else None

    @property
    def startup_s(self) -> float | None:
        """Seconds from run_start to the first block or epoch of training."""
        first = next((event for event in self._events if event.key in ("block_start", "epoch_start")), None)
        if first is None or self.started_ms is None:
            return None
        return (first.time_ms - self.started_ms) / 1e3

    @property
    def evaluation_s(self) -> float:
        """Seconds between eval_start and eval_stop, summed."""
        total, started = 0.0, None
        for event in self._events:
            if event.key == "eval_start":
                started = event.time_ms
            elif event.key == "eval_stop" and started is not None:
                total, started = total + (event.time_ms - started) / 1e3, None
        return total

    def _value(self, key: str) -> Any:
        return next((event.value for event in self._events if event.key == key), None)

    def _text(self, key: str) -> str | None:
        value = self._value(key)
        return value if isinstance(value, str) else None

    def _time(self, key: str) -> float | None:
        return next((event.time_ms for event in self._events if event.key == key), None)


def _number(value: Any) -> float | None:
    """A finite number, or None; true and false are no numbers."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)
