"""Compare programs that train to a target: rows of means, and how many times as fast bertbench is, with an interval."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from bertbench.common.intervals import of_ratio
from bertbench.common.tables import table_lines
from lab.bench.harness import Ratio
from lab.bench.whole_run import Trained

OURS = "bertbench"
_COLUMNS = {
    "": "{0.name}", "seconds": "{0.seconds_to_target:,.1f}", "samples": "{0.samples_to_target:,.0f}",
    "samples/s": "{0.samples_per_s:,.0f}", "our speed-up": "{0.times:s}",
}  # fmt: skip


@dataclass(frozen=True)
class ProgramResult:
    """One program over all seeds."""

    name: str
    seconds_to_target: float | None
    """The mean; None if a run missed the target or had none."""
    samples_to_target: float | None
    """Mean."""
    samples_per_s: float
    """The median rate over whole runs, including evaluations."""
    reached: bool
    """Whether every run reached the target."""
    runs: int
    times_ours: Ratio | None
    """Its seconds divided by ours, and the ends of the 95 % interval; None unless both reached the target."""
    rate_ours: Ratio | None
    """Our samples/s with the same optimizer, divided by its samples/s; None if we have no such runs."""

    @property
    def times(self) -> str:
        """Return how many times as fast bertbench is, with the interval."""
        return str(self.times_ours or "-")


def result(name: str, runs: Sequence[Trained], ours: Sequence[Trained], alike: Sequence[Trained]) -> ProgramResult:
    """Return the row of a program, compared with our runs and with those of ours that use the same optimizer."""
    reached = all(run.reached for run in runs)
    ours_reached = all(run.reached for run in ours)
    seconds = [run.seconds for run in runs]
    samples = [run.samples for run in runs]
    rates = [run.rate for run in runs]
    rates_alike = [run.rate for run in alike]
    return ProgramResult(
        name,
        seconds_to_target=round(statistics.mean(seconds), 3) if reached else None,
        samples_to_target=statistics.mean(samples) if reached else None,
        samples_per_s=round(statistics.median(rates), 1),
        reached=reached,
        runs=len(runs),
        times_ours=ratio_of_means(seconds, [run.seconds for run in ours]) if reached and ours_reached else None,
        rate_ours=ratio_of_means(rates_alike, rates) if rates_alike else None,
    )


def ratio_of_means(above: Sequence[float], below: Sequence[float]) -> Ratio:
    """Return the ratio of two independent geometric means, and its 95 % interval by Welch's t-test of the logarithms.

    The interval has no ends if a side has fewer than 2 values.
    """
    ratio, low, high = (None if value is None else round(value, 4) for value in of_ratio(above, below))
    assert ratio is not None
    return Ratio(ratio, low, high)


def lines_of(results: Sequence[ProgramResult]) -> list[str]:
    """Return the table, how much sooner than the Trainer we reach the target, and how much faster our steps are."""
    lines, ours = table_lines(results, _COLUMNS), results[0]
    baselines = [row for row in results if not row.name.startswith(OURS)]
    rates = [
        f"{baseline.rate_ours} as many samples/s as {baseline.name}, with the same optimizer"
        for baseline in baselines
        if baseline.rate_ours
    ]
    shares = [
        f"{baseline.times} as fast to the target as {baseline.name}; "
        f"fewer samples account for {baseline.samples_to_target / ours.samples_to_target:.2f} x of it"
        for baseline in baselines
        if baseline.times_ours and baseline.samples_to_target and ours.samples_to_target
    ]
    method = "ratios of geometric means, with 95 % intervals by Welch's t-test"
    return [*lines, *shares, *rates, method] if shares else lines
