"""Compare programs that train to a target: rows of means, and how many times as fast ours is, with an interval."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from scipy import special

from lab.bench.harness import Ratio, table
from lab.bench.whole_run import Trained

OURS = "bertbench"
_COLUMNS = {
    "": "{0.name}", "seconds": "{0.mean_seconds:,.1f}", "samples": "{0.mean_samples:,.0f}",
    "samples/s": "{0.samples_per_s:,.0f}", "ours is": "{0.times:s}",
}  # fmt: skip


@dataclass(frozen=True)
class Result:
    """One program over all seeds."""

    name: str
    seconds_to_target: float | None
    """Median; None if a run missed the target, or had none."""
    samples_to_target: float | None
    """Median."""
    samples_per_s: float
    """Median rate over whole runs, with evaluations."""
    reached: bool
    """Whether every run reached the target."""
    runs: int
    mean_seconds: float | None
    mean_samples: float | None
    times_ours: Ratio | None
    """Its mean seconds over ours, and the ends of the 95 % interval; None without both."""

    @property
    def times(self) -> str:
        """Return how many times as fast ours is, with the interval."""
        return str(self.times_ours or "-")


def result(name: str, runs: Sequence[Trained], ours: Sequence[Trained]) -> Result:
    """Return the row of a program beside ours."""
    reached = all(run.reached for run in runs)
    seconds, samples = [run.seconds for run in runs], [run.samples for run in runs]
    return Result(
        name,
        round(statistics.median(seconds), 3) if reached else None,
        statistics.median(samples) if reached else None,
        round(statistics.median(run.rate for run in runs), 1),
        reached,
        len(runs),
        round(statistics.mean(seconds), 3) if reached else None,
        statistics.mean(samples) if reached else None,
        fieller(seconds, [run.seconds for run in ours]) if reached and all(run.reached for run in ours) else None,
    )


def fieller(above: Sequence[float], below: Sequence[float]) -> Ratio:
    """Return the ratio of two independent means, and its 95 % interval; no ends with fewer than 2 values a side.

    Fieller (1954), Some problems in interval estimation, with Welch's degrees of freedom for unequal variances.
    """
    mean_above, mean_below = statistics.mean(above), statistics.mean(below)
    ratio = mean_above / mean_below
    if min(len(above), len(below)) < 2:
        return Ratio(round(ratio, 4))
    spread_above, spread_below = (statistics.variance(values) / len(values) for values in (above, below))
    parts = spread_above, ratio**2 * spread_below
    freedom = sum(parts) ** 2 / (parts[0] ** 2 / (len(above) - 1) + parts[1] ** 2 / (len(below) - 1))
    square = special.stdtrit(freedom, 0.975) ** 2
    over = mean_below**2 - square * spread_below
    root = max(0.0, (mean_above * mean_below) ** 2 - over * (mean_above**2 - square * spread_above)) ** 0.5
    if over <= 0:  # our mean may be 0
        return Ratio(round(ratio, 4))
    low, high = ((mean_above * mean_below + sign * root) / over for sign in (-1, 1))
    return Ratio(round(ratio, 4), round(low, 4), round(high, 4))


def lines_of(results: Sequence[Result]) -> list[str]:
    """Return the table, and how much faster ours is than the Trainer."""
    lines, ours = table(results, _COLUMNS), results[0]
    trainers = [rival for rival in results if not rival.name.startswith(OURS)]
    if not trainers:
        return lines
    fastest = max(trainers, key=lambda rival: rival.samples_per_s)
    lines.append(f"{ours.samples_per_s / fastest.samples_per_s:.2f} times the samples/s of {fastest.name}")
    shares = [
        f"{rival.times} as fast to the target as {rival.name}: "
        f"{rival.mean_samples / ours.mean_samples:.2f} of it by fewer samples"
        for rival in trainers
        if rival.times_ours and rival.mean_samples and ours.mean_samples
    ]
    method = "ratios of means, with 95 % intervals by Fieller's theorem for unequal variances"
    return [*lines, *shares, method] if shares else lines
