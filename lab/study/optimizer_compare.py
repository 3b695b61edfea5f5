"""Compare optimizers by samples and seconds to target: arm by arm, and pooled over cells."""

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lab.study.intervals import Difference, compare, half_interval, in_words
from lab.study.optimizer import Result, name_of
from lab.study.optimizer_definition import REFERENCE, Cell
from lab.study.optimizer_seconds import Step, StepSeconds
from lab.study.stopping_step import Ratio, crossings, ratio, stopping_step


@dataclass(frozen=True)
class Row:
    """One seed of one arm with its own crossing, for paired differences."""

    arm: str
    seed: int
    samples_to_target: float | None
    """None if it missed the target before the arm's runs ended."""
    seconds_to_target: float | None
    reached: bool


@dataclass(frozen=True)
class Summary:
    """One arm over all its seeds."""

    arm: str
    optimizer: str
    ema: bool
    start: str
    hidden: int
    batch: int
    values: dict[str, float]
    """The tuned values."""
    ema_window: float | None
    """Steps that the average reaches back, as a share of the decay."""
    seeds: int
    reached: int
    samples_to_target: float | None
    """At the one stopping step; None if the mean of the seeds missed the target."""
    samples_low: float | None
    """Ends of the 95 % interval; None beyond the end of the runs."""
    samples_high: float | None
    step_seconds: float
    seconds_to_target: float | None


@dataclass(frozen=True)
class Comparison:
    """Two arms of one cell."""

    arm: str
    against: str
    samples: Ratio | None
    """Ratio at both arms' stopping steps; None where an arm has none."""
    seconds: float | None
    """The same ratio in seconds."""
    difference: Difference | None
    """Samples of each seed at its own crossing."""


@dataclass(frozen=True)
class Pooled:
    """The geometric mean of ratios over cells, with Student's 95 % interval; every cell was tuned separately."""

    arm: str
    against: str
    cells: str
    """`all` cells, or those of a start, a width or a batch."""
    counted: int
    """Cells in which both arms reached the target."""
    total: int
    samples: float | None
    low: float | None
    high: float | None
    seconds: float | None

    @property
    def verdict(self) -> str:
        """Return the verdict in words: only an interval without 1 over all cells shows a difference."""
        if self.counted < self.total:
            return f"not decided: the target was missed in {self.total - self.counted} of {self.total} cells"
        return in_words(self.low, self.high, 1)


class Findings:
    """Rows, summaries and comparisons of a study's results."""

    def __init__(
        self, results: Sequence[Result], target: float, seconds: StepSeconds, windows: Sequence[float]
    ) -> None:
        self._target, self._windows = target, windows
        self._by_name = {result.name: result for result in results}
        self._seconds = {
            result.name: seconds[Step(result.arm.optimizer, result.ema, result.arm.cell.hidden, result.arm.cell.batch)]
            for result in results
        }
        self.rows = [row for result in results for row in self._rows(result)]
        self.summaries = [self._summary(result) for result in results]
        self.comparisons = [self._comparison(name, against) for name, against in self._pairs()]
        self.pooled = list(self._pooled())

    def _rows(self, result: Result) -> Iterator[Row]:
        group = result.group
        own = crossings(group.curves_of(result.choice.read_out), self._target)
        for seed, crossing in enumerate(own, start=1):
            samples = float(crossing) * group.interval if math.isfinite(crossing) else None
            yield Row(result.name, seed, samples, self._in_seconds(result, samples), samples is not None)

    def _in_seconds(self, result: Result, samples: float | None) -> float | None:
        return None if samples is None else samples / result.arm.cell.batch * self._seconds[result.name]

    def _summary(self, result: Result) -> Summary:
        group, choice, cell = result.group, result.choice, result.arm.cell
        crossing = stopping_step(group.curves_of(choice.read_out), self._target)
        mean, low, high = (
            None if end is None else end * group.interval for end in (crossing.mean, crossing.low, crossing.high)
        )
        own = [row for row in self.rows if row.arm == result.name]
        return Summary(
            result.name, result.arm.optimizer, result.ema, *cell, choice.values._asdict(),
            self._windows[choice.read_out - 1] if result.ema else None, len(own), sum(row.reached for row in own),
            mean, low, high, self._seconds[result.name], self._in_seconds(result, mean),
        )  # fmt: skip

    def _pairs(self) -> Iterator[tuple[str, str]]:
        """Yield every optimizer against the reference, and every average against the weights of the same optimizer."""
        for name, result in self._by_name.items():
            optimizer, cell = result.arm
            if result.ema:
                yield name, name_of(optimizer, False, cell)
            elif optimizer != REFERENCE:
                yield name, name_of(REFERENCE, False, cell)

    def _comparison(self, name: str, against: str) -> Comparison:
        ours, theirs = self._by_name[name], self._by_name[against]
        curves, others = (result.group.curves_of(result.choice.read_out) for result in (ours, theirs))
        found = ratio(curves, others, self._target)
        seconds = None if found is None else found.mean * self._seconds[name] / self._seconds[against]
        own = compare([vars(row) for row in self.rows], name, against)
        return Comparison(name, against, found, seconds, own.difference if own else None)

    def _pooled(self) -> Iterator[Pooled]:
        compared = [self._by_name[comparison.arm] for comparison in self.comparisons]
        kinds = dict.fromkeys((result.arm.optimizer, result.ema) for result in compared)
        cells = list(dict.fromkeys(result.arm.cell for result in self._by_name.values()))
        for optimizer, ema in kinds:
            for which, chosen in groups_of(cells).items():
                names = {name_of(optimizer, ema, cell) for cell in chosen}
                against = optimizer if ema else REFERENCE
                own = [comparison for comparison in self.comparisons if comparison.arm in names]
                yield pooled(f"{optimizer}{'_ema' if ema else ''}", against, which, own)


def pooled(arm: str, against: str, which: str, comparisons: Sequence[Comparison]) -> Pooled:
    """Return the geometric mean of the ratios of some cells, with an interval where at least two count."""
    samples = [math.log(comparison.samples.mean) for comparison in comparisons if comparison.samples is not None]
    seconds = [math.log(comparison.seconds) for comparison in comparisons if comparison.seconds is not None]
    half = half_interval(samples)
    mean = statistics.mean(samples) if samples else None
    low, high = (None, None) if mean is None or half is None else (math.exp(mean - half), math.exp(mean + half))
    return Pooled(
        arm, against, which, len(samples), len(comparisons), None if mean is None else math.exp(mean), low, high,
        math.exp(statistics.mean(seconds)) if seconds else None,
    )  # fmt: skip


def groups_of(cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    """Return all cells, and those of each start, width and batch, by a name."""
    found = {"all": list(cells)}
    for cell in cells:
        for name in (cell.start, f"width {cell.hidden}", f"batch {cell.batch}"):
            found.setdefault(name, []).append(cell)
    return found
