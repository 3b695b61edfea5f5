"""Define a question: a figure that a reviewer may ask the submitter about. It can't change a verdict."""

import math
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple

from compliance.read.run import RunFacts


@dataclass(frozen=True)
class Topic:
    """What a question is about, and what published results usually show."""

    id: str
    asks: str
    usual: str

    def question(self, figure: str, line: int | None = None) -> "Question":
        """Return a question on this topic."""
        return Question(self, figure, line)

    def as_json(self) -> dict[str, Any]:
        """Return the fields that `rules --json` prints."""
        return {"id": self.id, "asks": self.asks, "usual": self.usual}


class Question(NamedTuple):
    """An unusual figure in a log; `line` counts from 1, and is None if no single line has the figure."""

    topic: Topic
    figure: str
    line: int | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the fields that `--json` prints."""
        return {"question": self.topic.id, "line": self.line, "figure": self.figure, "usual": self.topic.usual}


class NamedRun(NamedTuple):
    """A run of a result, and the name of its log."""

    log: str
    facts: RunFacts


_STANDARD = 1.4826
"""In a normal distribution, the standard deviation is the median absolute deviation times this."""


def deviations_from_median(values: list[float]) -> list[float]:
    """Return how many standard deviations each value lies above the median; a few outliers affect neither.

    If more than half of the values are equal, every other value is infinitely far away.
    """
    usual = median(values)
    spread = _STANDARD * median(abs(value - usual) for value in values)
    if spread == 0:
        return [_infinitely_far(value, usual) for value in values]
    return [(value - usual) / spread for value in values]


def _infinitely_far(value: float, usual: float) -> float:
    if value == usual:
        return 0.0
    return math.inf if value > usual else -math.inf
