"""List the runs in a folder of logs, a row each, with its status and the judge's verdict.

The status comes from a run's log, or, if the log doesn't end, from the time when its files last grew.
"""

import re
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from bertbench.common.errors import DataError
from bertbench.common.markup import aligned
from bertbench.common.paths import shown_path
from bertbench.report.runs import COLUMNS, cells
from bertbench.run_files.reading import described
from bertbench.run_files.samples import samples_per_s
from bertbench.run_files.settings import reached, target_of
from bertbench.run_files.verdicts import verdict
from compliance.read.find import logs_below
from compliance.read.log import CannotJudge, read_events
from compliance.read.record import printable
from compliance.read.run import RunFacts

_LOG_NAME = re.compile(r"(result|smoke|profile)_\d+\.txt")
_QUIET_S = 300.0  # a GPU run writes at evaluations only, minutes apart
_QUIET_GAPS = 3
"""A run counts as lost after a silence of this many times the longest in its log, and at least `_QUIET_S`."""
MISSED = "missed the target"
"""Status of a run that claims success below its target."""
NO_LOG = "no log"
"""Status of a file that is none."""
LISTED = (
    "run", "system", "seed", "status", "time_to_train_s", "best_accuracy", "samples_per_s", "commit", "verdict",
)  # fmt: skip
"""Fields of a row."""


def run_logs(path: Path) -> list[Path]:
    """Return the log at `path`, or all logs of a folder: results, smoke tests and profiles, by folder and number.

    A path without logs names the run whose log is called so with .txt. Raises DataError if there is no log.
    """
    logs = [path] if path.is_file() else logs_below(path, lambda name: _LOG_NAME.fullmatch(name) is not None)
    if not logs:
        raise DataError(f"{shown_path(path)}: found no run there; start one with `bertbench train`, or name its folder")
    return logs


def check_log(log: Path) -> None:
    """Raise CannotJudge unless a file is a log, or empty, as one is before a run writes its first line."""
    try:
        read_events(log)
    except CannotJudge:
        if log.stat().st_size:
            raise


def why_no_log(log: Path) -> str:
    """Return why a file is no log, in a line; empty if it is one."""
    try:
        read_events(log)
    except CannotJudge as problem:
        return printable(str(problem))
    return ""


def listed(log: Path, ruleset: str | None) -> dict[str, Any]:
    """Return the row of one log; an unknown field is None.

    `status` is success, missed the target, aborted, interrupted, running, unfinished, not started, no log, smoke or
    profile; `verdict` is pass, fail or cannot-judge, and None until the run has ended and for a run that is no result.
    """
    try:
        facts, readable = RunFacts(read_events(log)), True
    except CannotJudge:
        facts, readable = RunFacts([]), log.stat().st_size == 0
    stands = status(log, facts) if readable else NO_LOG
    ended = facts.status is not None and stands != "interrupted"
    judged = verdict(log, ruleset) if not readable or (ended and facts.not_a_result is None) else None
    if judged and judged.verdict == "pass" and facts.status == "success":
        stands = "success" if reached(log, facts, judged) else MISSED
    commit = described(log, "run.json").get("commit")
    return {
        "run": str(log),
        "system": system_name(log, facts),
        "seed": facts.seed if isinstance(facts.seed, int) else None,
        "status": stands,
        "time_to_train_s": facts.time_to_train_s if stands != "interrupted" else None,
        "best_accuracy": facts.best_accuracy,
        "target": target_of(log, facts),
        "samples_per_s": samples_per_s(facts),
        "commit": commit if isinstance(commit, str) else None,
        "verdict": judged and judged.verdict,
    }


def status(log: Path, facts: RunFacts) -> str:
    """Return a run's status: the end of its log, or whether its files still grow.

    A stopped run that can be resumed is `interrupted`; one whose files are silent for too long is `unfinished`.
    """
    if stop := facts.first("run_stop"):
        if facts.not_a_result in ("smoke", "profile"):
            return facts.not_a_result
        text = stop.metadata.get("status")
        if stop.metadata.get("interrupted"):
            return "interrupted"
        if text == "success" and (facts.best_accuracy or 0.0) < (target_of(log, facts) or 0.0):
            return MISSED
        return text if isinstance(text, str) else "unfinished"
    times = [event.time_ms / 1e3 for event in facts.events()]
    longest = max((later - earlier for earlier, later in pairwise(times)), default=0.0)
    if silence_s(log) <= max(_QUIET_S, _QUIET_GAPS * longest):
        return "running"
    return "unfinished" if facts.started_ms is not None else "not started"


def silence_s(log: Path) -> float:
    """Return the seconds since a run last wrote to its log or its metrics."""
    written = [0.0]
    for path in (log, log.with_suffix("") / "metrics.jsonl"):
        with suppress(OSError):  # not there yet, removed, or on a file system that comes back
            written.append(path.stat().st_mtime)
    return time.time() - max(written)


def system_name(log: Path, facts: RunFacts) -> str:
    """Return the system's name, from its configuration, its log, or the folder."""
    name = described(log, "config.json").get("name") or facts.platform
    return name if isinstance(name, str) else log.parent.parent.name


def arranged(rows: Sequence[dict[str, Any]], column: str) -> list[dict[str, Any]]:
    """Return rows sorted by a column, rows without a value last."""
    return sorted(rows, key=lambda row: (row[column] is None, row[column]))


def text_table(rows: Sequence[dict[str, Any]]) -> str:
    """Return rows as a table for a terminal."""
    header = [COLUMNS[key][0] for key in LISTED]
    return "\n".join(aligned(header, [[row["run"], *cells(row, LISTED[1:])] for row in rows], left=len(header)))
