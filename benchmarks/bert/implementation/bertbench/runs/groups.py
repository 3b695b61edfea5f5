"""Group judged runs by system and settings, and give each group its means and MLPerf's score.

tables.py shows groups in a terminal, report_page.py on a page.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import mean
from typing import Any

from bertbench.runs.judged_runs import JudgedRun, judged_runs
from bertbench.runs.run_settings import Values, same_settings
from compliance import runs_per_result
from compliance.read.find import find_logs
from compliance.read.source import CannotJudge

RUNS = runs_per_result("bert")
"""The number of runs in a result."""


@dataclass(frozen=True)
class Group:
    """The judged runs of one system with the same settings."""

    system: str
    settings: Values
    """The settings in which groups of the system differ."""
    runs: tuple[JudgedRun, ...]

    @property
    def results(self) -> list[JudgedRun]:
        """Return the runs that aren't smoke tests or profiles."""
        return [judged for judged in self.runs if judged.run.not_a_result is None]

    @property
    def reaching(self) -> list[JudgedRun]:
        """Return the results that reached the target and that the judge passes."""
        return [judged for judged in self.results if judged.reached]

    @property
    def reached_not_passed(self) -> int:
        """Return the number of results that reached the target, but whose logs the judge doesn't pass."""
        return sum(judged.reached_not_passed for judged in self.results)

    @property
    def mean_time_to_train_s(self) -> float | None:
        """Return the mean over the runs that reached the target."""
        return mean_of([judged.run.time_to_train_s for judged in self.reaching])

    @property
    def mean_samples_to_converge(self) -> float | None:
        """Return the mean over the runs that reached the target."""
        return mean_of([judged.run.samples for judged in self.reaching])

    @property
    def score_s(self) -> float | None:
        """Return MLPerf's score; None unless the runs are those of a result."""
        return mlperf_score(self.results)

    @cached_property
    def counted(self) -> frozenset[Path]:
        """Return the logs whose runs count in the score or, if there is no score, in the means."""
        reaching = {judged.run.log for judged in self.reaching}
        if self.score_s is None:
            return frozenset(reaching)
        return frozenset(reaching & {judged.run.log for judged in counted_in_score(self.results)})

    @property
    def passed(self) -> int:
        """Return the number of logs that the judge passes."""
        return sum(judged.verdict == "pass" for judged in self.runs)

    @property
    def rulesets(self) -> list[str]:
        """Return the rulesets by which the runs were judged."""
        return sorted({judged.ruleset for judged in self.runs})

    def fields(self) -> dict[str, Any]:
        """Return what `bertbench report --json` prints."""
        return {
            "system": self.system,
            "settings": self.settings,
            "runs": [judged.fields() | {"counted": judged.run.log in self.counted} for judged in self.runs],
            "reached": len(self.reaching),
            "reached_not_passed": self.reached_not_passed,
            "mean_time_to_train_s": self.mean_time_to_train_s,
            "mean_samples_to_converge": self.mean_samples_to_converge,
            "score_s": self.score_s,
            "rulesets": self.rulesets,
            "passed": self.passed,
        }


def judged_groups(paths: Sequence[Path], ruleset: str | None) -> list[Group]:
    """Judge runs, and group them by system and settings in the order of the logs.

    Each folder is a system, named after the platform of its first log. If several folders have the same platform, the
    name also contains the folder. Raises CannotJudge if there is no log, or if none can be read.
    """
    logs = list(dict.fromkeys(log for path in paths for log in find_logs(path)))
    runs = judged_runs(logs, ruleset)
    if not any(judged.run.facts.events() for judged in runs):
        message = runs[0].why_no_log
        if len(logs) > 1:
            message += f"; {len(logs) - 1} more files can't be read either"
        raise CannotJudge(message)
    folders: dict[Path, list[JudgedRun]] = defaultdict(list)
    for judged in runs:
        folders[judged.run.log.parent].append(judged)
    platforms = {folder: _platform(folder, runs) for folder, runs in folders.items()}
    folders_of_platform = Counter(platforms.values())
    groups: list[Group] = []
    for folder, runs_of_folder in folders.items():
        name = platforms[folder]
        if folders_of_platform[name] > 1:
            name = f"{name}, {folder}"
        for settings, members in same_settings([judged.run for judged in runs_of_folder]):
            groups.append(Group(name, settings, tuple(runs_of_folder[place] for place in members)))
    return groups


def _platform(folder: Path, runs: Sequence[JudgedRun]) -> str:
    """Return the platform that the first log in a folder names, or else the name of the system's folder."""
    platforms = (judged.run.facts.platform for judged in runs)
    return next((platform for platform in platforms if platform), folder.parent.name)


def mean_of(values: Sequence[float | None]) -> float | None:
    """Return the mean of runs that reached the target; None if there are none, or if a value is unknown."""
    known = [value for value in values if value is not None]
    return mean(known) if known and len(known) == len(values) else None


def counted_in_score(results: Sequence[JudgedRun]) -> list[JudgedRun]:
    """Return the runs that count in a result's score: all but the fastest and the slowest. A failed run is slowest."""

    def time_s(judged: JudgedRun) -> float:
        time_to_train_s = judged.run.time_to_train_s if judged.reached else None
        return math.inf if time_to_train_s is None else time_to_train_s

    return sorted(results, key=time_s)[1:-1]


def mlperf_score(results: Sequence[JudgedRun]) -> float | None:
    """Return MLPerf's score of a result's runs; None unless there are ten, of which at most one failed."""
    failed = sum(not judged.reached or judged.run.time_to_train_s is None for judged in results)
    if len(results) != RUNS or failed > 1:
        return None
    return mean_of([judged.run.time_to_train_s for judged in counted_in_score(results)])
