"""Find the straggler: the rank that takes longest to reach the collectives, and the phase in which it loses time."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

from bertbench.common.phases import FORWARD, OWN, RANKS_MS, REPLAY
from bertbench.runs.json_files import metric_rows
from compliance.read.run import number

RankTimes = Mapping[str, Sequence[float]]
"""For each phase of a step, the milliseconds of each rank."""

_APART = 1.1  # a straggler takes 1.1 times the others' median plus 0.5 ms; smaller differences are scheduling noise
_LEAST_MS = 0.5


@dataclass(frozen=True)
class Straggler:
    """A rank for which the others wait."""

    rank: int
    phase: str
    """The phase in which it loses the most time."""
    behind_ms: float
    """Its own time per step, minus the median of the others."""
    phase_behind_ms: float
    """The time that it loses in `phase`; more than `behind_ms` if it gains time in other phases."""

    def text(self) -> str:
        """Return a line about the straggler, for the end of a run's output."""
        total = f"rank {self.rank} is slow in {self.phase}: it is {self.behind_ms:.1f} ms per step behind the others"
        gained_ms = self.phase_behind_ms - self.behind_ms
        if gained_ms > 0:  # it is faster than the others in another phase
            return (
                f"{total}; it loses {self.phase_behind_ms:.1f} ms in {self.phase} and gains {gained_ms:.1f} ms in "
                "other phases"
            )
        return f"{total}, of which {self.phase_behind_ms:.1f} ms in {self.phase}"


def find_straggler(times: RankTimes) -> Straggler | None:
    """Return the rank whose own time is clearly longer than the others', if there is one."""
    own_ms = [sum(times_of_rank) for times_of_rank in zip(*times.values(), strict=True)]
    if len(own_ms) < 2:
        return None
    slowest = max(range(len(own_ms)), key=own_ms.__getitem__)
    usual_ms = _median_of_others(own_ms, slowest)
    if own_ms[slowest] <= max(_APART * usual_ms, usual_ms + _LEAST_MS):
        return None
    behind_ms = {phase: by_rank[slowest] - _median_of_others(by_rank, slowest) for phase, by_rank in times.items()}
    phase = max(behind_ms, key=behind_ms.__getitem__)
    return Straggler(slowest, phase, own_ms[slowest] - usual_ms, behind_ms[phase])


def straggler_of(log: Path) -> Straggler | None:
    """Return the straggler of a whole run, from its metrics."""
    return find_straggler(mean_times(rank_times(row) for row in metric_rows(log)))


def rank_times(row: Mapping[str, Any]) -> RankTimes:
    """Return the ranks' times in a line of metrics.jsonl; nothing unless it has a list of numbers for each phase.

    Also return nothing for a step whose passes weren't timed, because the other phases alone don't show a straggler.
    """
    content = row.get(RANKS_MS)
    if not isinstance(content, dict):
        return {}
    times: dict[str, Any] = {phase: content.get(phase) for phase in OWN}
    if not all(_are_numbers(by_rank) for by_rank in times.values()):
        return {}
    if not any(times[FORWARD]) and not any(_numbers(content.get(REPLAY))):
        return {}
    ranks = {len(by_rank) for by_rank in times.values()}
    return times if len(ranks) == 1 else {}


def mean_times(lines: Iterable[RankTimes]) -> RankTimes:
    """Return the mean over lines with as many ranks as the last line: a run may resume with another number of ranks."""
    known = [line for line in lines if line]
    if not known:
        return {}
    ranks = _ranks(known[-1])
    same = [line for line in known if _ranks(line) == ranks]
    means = {}
    for phase in OWN:
        ms_by_rank = zip(*(line[phase] for line in same), strict=True)
        means[phase] = [mean(ms_of_rank) for ms_of_rank in ms_by_rank]
    return means


def _ranks(line: RankTimes) -> int:
    return len(line[OWN[0]])


def _numbers(values: Any) -> Sequence[float]:
    return values if _are_numbers(values) else []


def _are_numbers(values: Any) -> bool:
    return isinstance(values, list) and all(number(value) is not None for value in values)


def _median_of_others(values: Sequence[float], rank: int) -> float:
    return median([*values[:rank], *values[rank + 1 :]])
