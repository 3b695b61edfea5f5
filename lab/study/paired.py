"""Set a study's arms beside its reference arm: differences of paired seeds, as shares of the reference's samples."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from lab.study.compare import Difference, SeedRow, paired_difference, samples_of

HEAD = ("arm", "reached", "samples", "beside the first", "95 % interval")


@dataclass(frozen=True)
class SeedResult:
    """One seed of one arm."""

    arm: str
    seed: int
    samples_to_target: float | None
    """Between evaluations by a straight line; None if missed."""
    reached: bool


@dataclass(frozen=True)
class Paired:
    """An arm beside the reference arm, over the seeds with which both reached the target."""

    difference: Difference
    reference: float
    """Mean samples to target of the reference arm."""
    seeds: int

    @property
    def shares(self) -> tuple[float, float, float]:
        """Return the difference's mean, low and high end as shares of the reference."""
        one = self.difference
        return one.mean / self.reference, one.low / self.reference, one.high / self.reference


def paired(rows: Sequence[SeedRow], arm: str, against: str) -> Paired | None:
    """Return the two arms' difference beside its reference; None for fewer than 2 seeds."""
    if (difference := paired_difference(rows, arm, against)) is None:
        return None
    theirs = samples_of(rows, against)
    both = samples_of(rows, arm).keys() & theirs.keys()
    return Paired(difference, statistics.mean(theirs[seed] for seed in both), len(both))


def table_row(arm: str, rows: Sequence[SeedRow], found: Sequence[Paired]) -> tuple[str, ...]:
    """Return an arm's cells under `HEAD`."""
    samples = samples_of(rows, arm).values()
    mean = f"{statistics.mean(samples):,.0f}" if samples else "-"
    shares = next((one.shares for one in found if one.difference.arm == arm), None)
    cells = (f"{shares[0]:+.1%}", f"{shares[1]:+.1%} to {shares[2]:+.1%}") if shares else ("", "")
    return (arm, f"{len(samples)}/{sum(row.arm == arm for row in rows)}", mean, *cells)
