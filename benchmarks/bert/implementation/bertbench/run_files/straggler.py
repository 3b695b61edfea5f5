"""Find the straggler: the rank with the longest own time before each collective, and the phase in which it lags."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any, NamedTuple

from bertbench.common.phases import OWN, RANKS_MS
from bertbench.run_files.reading import metrics
from compliance.read.run import number

RankTimes = Mapping[str, Sequence[float]]

_APART = 1.1  # times the median of the others, and half a millisecond more: less is scheduling noise
_LEAST_MS = 0.5


class Straggler(NamedTuple):
    """A rank that the others wait for."""

    rank: int
    phase: str
    """Phase in which it loses the most time."""
    behind_ms: float
    """Its own time a step, minus the median of the others'."""
    phase_behind_ms: float
    """Part of that time in `phase`."""

    def text(self) -> str:
        """Return the straggler in a line, for the end of a run's output."""
        return (
            f"rank {self.rank} is slow in {self.phase}: {self.behind_ms:.1f} ms a step behind the others, "
            f"{self.phase_behind_ms:.1f} ms of them in {self.phase}"
        )


def straggler(times: RankTimes) -> Straggler | None:
    """Return the rank that is clearly slower than the others by their own times, if there is one."""
    own = [sum(of_rank) for of_rank in zip(*times.values(), strict=True)]
    if len(own) < 2:
        return None
    rank = max(range(len(own)), key=own.__getitem__)
    usual = _usual(own, rank)
    if own[rank] <= max(_APART * usual, usual + _LEAST_MS):
        return None
    behind = {phase: of[rank] - _usual(of, rank) for phase, of in times.items()}
    phase = max(behind, key=behind.__getitem__)
    return Straggler(rank, phase, own[rank] - usual, behind[phase])


def straggler_of(log: Path) -> Straggler | None:
    """Return the straggler of a whole run, from the metrics beside its log."""
    return straggler(mean_times(map(rank_times, metrics(log))))


def rank_times(row: Mapping[str, Any]) -> RankTimes:
    """Return the ranks' times in a line of metrics.jsonl; nothing unless it has a list of numbers for each phase."""
    found = row.get(RANKS_MS)
    times: dict[str, Any] = {phase: found.get(phase) for phase in OWN} if isinstance(found, dict) else {}
    numbers = [isinstance(of, list) and all(number(one) is not None for one in of) for of in times.values()]
    return times if all(numbers) and len({len(of) for of in times.values()}) == 1 else {}


def mean_times(lines: Iterable[RankTimes]) -> RankTimes:
    """Return the mean of the lines that have as many ranks as the last, because a run may resume with others."""
    known = [line for line in lines if line]
    same = [line for line in known if len(line[OWN[0]]) == len(known[-1][OWN[0]])]
    return {phase: list(map(mean, zip(*(line[phase] for line in same), strict=True))) for phase in OWN if same}


def _usual(values: Sequence[float], besides: int) -> float:
    return median(value for rank, value in enumerate(values) if rank != besides)
