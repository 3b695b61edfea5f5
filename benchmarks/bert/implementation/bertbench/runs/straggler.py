"""Sum up the phases of a run's steps: where the time goes, and which rank takes longest to reach the collectives."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bertbench.common.phases import FORWARD, OWN, PHASES, REPLAY
from bertbench.common.tables import aligned
from bertbench.runs.trace_reader import StepPhases, read_trace

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
    """Return the straggler of a run, from its trace."""
    return find_straggler(mean_times(read_trace(log).phases))


def mean_times(phases: Iterable[StepPhases]) -> RankTimes:
    """Return the mean of each rank's own phases over all steps with as many ranks as the last ones.

    A run may resume with another number of ranks. Steps whose passes weren't timed are left out, because the other
    phases alone don't show a straggler.
    """
    known = [part for part in phases if any(part.ms[FORWARD].values()) or any(part.ms[REPLAY].values())]
    if not known:
        return {}
    ranks = known[-1].ranks
    same = [part for part in known if part.ranks == ranks]
    steps = sum(part.steps for part in same)
    means = {}
    for phase in OWN:
        means[phase] = [sum(part.steps * part.ms[phase].get(rank, 0.0) for part in same) / steps for rank in ranks]
    return means


def phase_table(log: Path) -> str:
    """Return a table of the milliseconds that rank 0 spends in each phase of a step, the mean of a run's steps."""
    phases = read_trace(log).phases
    steps = sum(part.steps for part in phases)
    ms_by_phase = {phase: sum(part.steps * part.ms[phase].get(0, 0.0) for part in phases) / steps for phase in PHASES}
    taken = sorted((phase for phase in PHASES if ms_by_phase[phase]), key=ms_by_phase.__getitem__, reverse=True)
    total_ms = sum(ms_by_phase.values())
    rows = [[phase, f"{ms_by_phase[phase]:.2f}", f"{ms_by_phase[phase] / total_ms:.1%}"] for phase in taken]
    rows.append(["one step", f"{total_ms:.2f}", "100.0%"])
    title = f"where the time of a step goes (rank 0, mean of {steps} steps, profiled):"
    return "\n".join([title, *aligned(["phase", "ms", ""], rows, left=1)])


def _median_of_others(values: Sequence[float], rank: int) -> float:
    return median([*values[:rank], *values[rank + 1 :]])
