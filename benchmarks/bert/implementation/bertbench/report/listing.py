"""List the runs in a folder of logs, a row each, with its status and the judge's verdict.

The status comes from a run's log, or, if the log doesn't end, from the time when its files last grew.
"""

import re
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from bertbench.report.beside import described
from bertbench.report.runs import aligned, cell
from compliance.judge import judge, logs_below
from compliance.log import CannotJudge, read_events
from compliance.run import RunFacts

_LOG_NAME = re.compile(r"(result|smoke|profile)_\d+\.txt")
_QUIET_S = 300.0  # a GPU run writes at evaluations only, minutes apart
_QUIET_GAPS = 3
"""A run counts as lost after a silence of this many times the longest in its log, and at least `_QUIET_S`."""
_COMMIT_DIGITS = 7


class Listed(NamedTuple):
    """One run; an unknown field is None."""

    run: str
    """Path of its log."""
    system: str
    seed: int | None
    status: str
    """success, aborted, interrupted, running, unfinished, not started, unreadable; or smoke, profile."""
    time_to_train_s: float | None
    best_accuracy: float | None
    samples_per_s: float | None
    commit: str | None
    verdict: str | None
    """pass, fail or cannot-judge; None until the run has ended, and for a run that is no result."""


def run_logs(path: Path) -> list[Path]:
    """Return the log at `path`, or all logs of a folder: results, smoke tests and profiles, by folder and number.

    A path without logs names the run whose log is called so with .txt.
    """
    if path.is_file():
        return [path]
    return logs_below(path, lambda name: _LOG_NAME.fullmatch(name) is not None)


def listed(log: Path, ruleset: str) -> Listed:
    """Return the row of one log; a log that can't be read has the status `unreadable`."""
    try:
        facts = RunFacts(read_events(log))
    except CannotJudge:
        empty = log.stat().st_size == 0
        facts = RunFacts([])
        stands = status(log, facts) if empty else "unreadable"
    else:
        stands = status(log, facts)
    judged = facts.status is not None and stands != "interrupted" and facts.not_a_result is None
    return Listed(
        str(log),
        system_name(log, facts),
        facts.seed if isinstance(facts.seed, int) else None,
        stands,
        facts.time_to_train_s if stands != "interrupted" else None,
        facts.best_accuracy,
        facts.samples_per_s,
        _commit(log),
        judge(log, ruleset).verdict if judged or stands == "unreadable" else None,
    )


def status(log: Path, facts: RunFacts, now: float | None = None) -> str:
    """Return a run's status: the end of its log, or whether its files still grow.

    A stopped run that can be resumed is `interrupted`; one whose files are silent for too long is `unfinished`.
    """
    if stop := facts.first("run_stop"):
        if facts.not_a_result in ("smoke", "profile"):
            return facts.not_a_result
        text = stop.metadata.get("status")
        return "interrupted" if stop.metadata.get("interrupted") else text if isinstance(text, str) else "unfinished"
    silent = silence_s(log, now)
    times = [event.time_ms / 1e3 for event in facts.events()]
    longest = max((later - earlier for earlier, later in pairwise(times)), default=0.0)
    if silent <= max(_QUIET_S, _QUIET_GAPS * longest):
        return "running"
    return "unfinished" if facts.started_ms is not None else "not started"


def silence_s(log: Path, now: float | None = None) -> float:
    """Return the seconds since a run last wrote to its log or its metrics."""
    files = (log, log.with_suffix("") / "metrics.jsonl")
    written = max((path.stat().st_mtime for path in files if path.exists()), default=0.0)
    return (time.time() if now is None else now) - written


def system_name(log: Path, facts: RunFacts) -> str:
    """Return the system's name, from its configuration, its log, or the folder."""
    name = described(log, "config.json").get("name") or facts.platform
    return name if isinstance(name, str) else log.parent.parent.name


def arranged(rows: Sequence[Listed], column: str, reverse: bool) -> list[Listed]:
    """Return rows sorted by a column, rows without a value last."""
    known = [row for row in rows if getattr(row, column) is not None]
    unknown = [row for row in rows if getattr(row, column) is None]
    return sorted(known, key=lambda row: getattr(row, column), reverse=reverse) + unknown


def text_table(rows: Sequence[Listed]) -> str:
    """Return rows as a table for a terminal."""
    header = ["run", "system", "seed", "status", "time s", "accuracy", "samples/s", "commit", "verdict"]
    return "\n".join(aligned(header, [[*_cells(row)] for row in rows], left=len(header)))


def _cells(row: Listed) -> Iterator[str]:
    yield row.run
    yield cell(row.system)
    yield _shown(row.seed, "{}")
    yield cell(row.status)
    yield _shown(row.time_to_train_s, "{:.1f}")
    yield _shown(row.best_accuracy, "{:.4f}")
    yield _shown(row.samples_per_s, "{:,.1f}")
    yield cell(row.commit[:_COMMIT_DIGITS]) if row.commit else "-"
    yield row.verdict or "-"


def _shown(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def _commit(log: Path) -> str | None:
    commit = described(log, "run.json").get("commit")
    return commit if isinstance(commit, str) else None
