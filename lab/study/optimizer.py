"""Compare optimizers by samples and seconds to target: tune every arm alike, and run all with the same seeds."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from bertbench.common.progress import Progress
from bertbench.model.bert import Bert
from lab.study.journal import Journal, Record
from lab.study.optimizer_definition import Arm, Cell, OptimizerDefinition, Values
from lab.study.optimizer_run import WEIGHTS, Group, Until, run_group, train_checkpoint
from lab.study.search import SPARE, TUNING_SEED, score_of, search

_SETTLE = 1.25  # of the mean's samples, for the seeds that are slower than the mean


class Choice(NamedTuple):
    """The tuned values of one read-out of an arm."""

    values: Values
    read_out: int
    """`WEIGHTS`, or the number of an average."""


@dataclass(frozen=True)
class Result:
    """One read-out of an arm, tuned and run with all seeds."""

    arm: Arm
    ema: bool
    choice: Choice
    group: Group

    @property
    def name(self) -> str:
        """Return the name used in tables and files."""
        return name_of(self.arm.optimizer, self.ema, self.arm.cell)


def name_of(optimizer: str, ema: bool, cell: Cell) -> str:
    """Return the name of an arm's read-out in tables and files."""
    return f"{optimizer}{'_ema' if ema else ''}_{cell.name}"


class OptimizerStudy:
    """The runs of a study in one folder."""

    def __init__(self, definition: OptimizerDefinition, folder: Path, progress: Progress) -> None:
        """Raise ConfigError if the folder holds another study."""
        self._definition, self._progress = definition, progress
        self.journal = Journal(folder, definition)
        self._start = cache(self._trained)

    def results(self) -> list[Result]:
        """Tune every arm and run it with all seeds; return its two read-outs."""
        arms = self._definition.arms()
        found = []
        for number, arm in enumerate(arms, start=1):
            found += self._results(arm)
            self._progress.update(number, len(arms), f"{arm.name}: {number} of {len(arms)} arms")
        return found

    def tried(self, arm: Arm) -> list[tuple[Values, list[float | None]]]:
        """Return what tuning tried, each with the samples to target of all read-outs; None where one missed it."""
        return [
            (Values(*map(record.__getitem__, Values._fields)), self._samples(_group_of(record)))
            for record in self.journal.records
            if (record["kind"], record["arm"]) == ("tuning", arm.name)
        ]

    def _results(self, arm: Arm) -> list[Result]:
        choices = self._tuned(arm)
        of_values: dict[Values, list[int]] = {}  # both read-outs of one run where they chose the same values
        for choice in choices:
            of_values.setdefault(choice.values, []).append(choice.read_out)
        groups = {
            values: self._group("comparison", arm, values, Until(dict.fromkeys(read_outs, math.inf), _SETTLE))
            for values, read_outs in of_values.items()
        }
        return [Result(arm, choice.read_out != WEIGHTS, choice, groups[choice.values]) for choice in choices]

    def _tuned(self, arm: Arm) -> list[Choice]:
        """Spend the arm's budget, and choose the best values for the weights and for the best of their averages."""
        definition, tuning = self._definition, self._definition.tuning
        ranges = definition.ranges(arm)
        read_outs = range(1 + len(definition.ema_windows))
        best = dict.fromkeys(read_outs, math.inf)
        scores: dict[Choice, float] = {}
        finals: dict[Choice, float] = {}

        def score(params: dict[str, float]) -> float:
            values = Values(**params)
            limits = {read_out: tuning.patience * samples for read_out, samples in best.items()}
            group = self._group("tuning", arm, values, Until(limits))
            for read_out in read_outs:
                best[read_out] = min(best[read_out], group.samples(read_out, definition.target) or math.inf)
                scores[Choice(values, read_out)] = self._score(arm, group, read_out)
            # the sum serves both read-outs: neither gets more of the budget
            return scores[Choice(values, WEIGHTS)] + min(scores[Choice(values, read_out)] for read_out in read_outs[1:])

        search(ranges, tuning.trials, definition.sampler_seed(arm), score)
        kinds = (read_outs[:1], read_outs[1:])
        finalists = dict.fromkeys(values for kind in kinds for values in self._best(scores, kind))
        limits = {read_out: tuning.patience * SPARE * best[read_out] for read_out in read_outs}
        for values in finalists:
            group = self._group("final", arm, values, Until(limits))
            finals.update({Choice(values, read_out): self._score(arm, group, read_out) for read_out in read_outs})
        return [min((choice for choice in finals if choice.read_out in kind), key=finals.__getitem__) for kind in kinds]

    def _best(self, scores: dict[Choice, float], read_outs: Sequence[int]) -> list[Values]:
        """Return the finalists of some read-outs, the best first."""
        ranked = sorted((choice for choice in scores if choice.read_out in read_outs), key=scores.__getitem__)
        return list(dict.fromkeys(choice.values for choice in ranked))[: self._definition.tuning.finalists]

    def _score(self, arm: Arm, group: Group, read_out: int) -> float:
        limit = self._definition.ranges(arm)["decay_samples"].high
        samples = group.samples(read_out, self._definition.target)
        return score_of(samples, float(group.curves_of(read_out)[:, -1].mean()), limit)

    def _group(self, kind: str, arm: Arm, values: Values, until: Until) -> Group:
        """Return the outcome of runs side by side, from the journal if they finished before."""
        key = {"kind": kind, "arm": arm.name, **values._asdict(), "read_outs": list(until.samples)}

        def run() -> dict[str, Any]:
            first, count = {
                "tuning": (TUNING_SEED, 1),
                "final": (TUNING_SEED + 1, self._definition.tuning.finalist_seeds),
                "comparison": (1, self._definition.seeds),
            }[kind]
            start = self._start(arm.cell.hidden) if arm.cell.start == "checkpoint" else None
            group = run_group(self._definition, arm, values, range(first, first + count), start, until)
            how = ", ".join("missed or stopped" if found is None else f"{found:,.0f}" for found in self._samples(group))
            self._progress.message(f"{kind} {arm.name}: {how} samples")
            return asdict(group)

        return _group_of(self.journal.trial(key, run))

    def _samples(self, group: Group) -> list[float | None]:
        return [group.samples(read_out, self._definition.target) for read_out in group.curves]

    def _trained(self, hidden: int) -> Bert:
        return train_checkpoint(self._definition, hidden)


def _group_of(record: Record) -> Group:
    return Group(record["interval"], {int(read_out): own for read_out, own in record["curves"].items()})
