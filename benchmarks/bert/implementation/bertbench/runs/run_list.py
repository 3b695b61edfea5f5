"""List the runs in a folder of logs, one row for each, with its status and the judge's verdict.

The status comes from a run's log or, if the log has no end, from the time when its files last grew.
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
from bertbench.runs.json_files import read_json
from bertbench.runs.run_settings import reached_target, system_name, target_of
from bertbench.runs.run_tables import COLUMNS, cells
from bertbench.runs.sample_counts import samples_per_s
from bertbench.runs.verdicts import Verdict, verdict_on
from compliance.read.find import logs_below
from compliance.read.log import CannotJudge, read_events
from compliance.read.record import printable
from compliance.read.run import RunFacts

_LOG_NAME = re.compile(r"(result|smoke|profile)_\d+\.txt")
_QUIET_S = 300.0  # a run on GPUs writes only at evaluations, which are minutes apart
_QUIET_GAPS = 3
"""A run counts as lost if it hasn't written for this many times the longest gap in its log, and at least `_QUIET_S`."""
MISSED = "missed the target"
"""The status of a run that claims success below its target."""
NO_LOG = "no log"
"""The status of a file that isn't a log."""
LISTED = (
    "log", "system", "seed", "status", "time_to_train_s", "best_accuracy", "samples_per_s", "commit", "verdict",
)  # fmt: skip
"""The fields of a row."""


def run_logs(path: Path) -> list[Path]:
    """Return the log at `path`, or all logs in a folder (results, smoke tests and profiles), by folder and number.

    If a path contains no logs, it names the run whose log has the same name with .txt. Raises DataError if there is no
    log.
    """
    if path.is_file():
        return [path]
    logs = logs_below(path, lambda name: _LOG_NAME.fullmatch(name) is not None)
    if not logs:
        raise DataError(f"{shown_path(path)}: found no run; start one with `bertbench train`, or name another folder")
    return logs


def check_log(log: Path) -> None:
    """Raise CannotJudge unless a file is a log or empty; it is empty until a run writes its first line."""
    try:
        read_events(log)
    except CannotJudge:
        if log.stat().st_size:
            raise


def why_no_log(log: Path) -> str:
    """Return a line that says why a file isn't a log; empty if it is one."""
    try:
        read_events(log)
    except CannotJudge as problem:
        return printable(str(problem))
    return ""


def listed(log: Path, ruleset: str | None) -> dict[str, Any]:
    """Return the row of one log; an unknown field is None.

    `status` is success, missed the target, aborted, interrupted, running, unfinished, not started, no log, smoke or
    profile. `verdict` is pass, fail or cannot-judge; it is None until the run has ended, and if the run isn't a result.
    """
    try:
        facts = RunFacts(read_events(log))
        is_log = True
    except CannotJudge:
        facts = RunFacts([])
        is_log = log.stat().st_size == 0
    run_status = status(log, facts) if is_log else NO_LOG
    judged = _verdict(log, facts, run_status, ruleset)
    if judged and judged.verdict == "pass" and facts.status == "success":
        run_status = "success" if reached_target(log, facts, judged) else MISSED
    commit = read_json(log, "run.json").get("commit")
    return {
        "log": str(log),
        "system": system_name(log, facts),
        "seed": facts.seed if isinstance(facts.seed, int) else None,
        "status": run_status,
        "time_to_train_s": facts.time_to_train_s if run_status != "interrupted" else None,
        "best_accuracy": facts.best_accuracy,
        "target": target_of(log, facts),
        "samples_per_s": samples_per_s(facts),
        "commit": commit if isinstance(commit, str) else None,
        "verdict": judged.verdict if judged else None,
    }


def _verdict(log: Path, facts: RunFacts, run_status: str, ruleset: str | None) -> Verdict | None:
    """Return the judge's verdict on a file that isn't a log, or on a result that has ended."""
    has_ended = facts.status is not None and run_status != "interrupted"
    is_result = has_ended and facts.not_a_result is None
    return verdict_on(log, ruleset) if run_status == NO_LOG or is_result else None


def status(log: Path, facts: RunFacts) -> str:
    """Return a run's status, from the end of its log or from whether its files still grow.

    A stopped run that can be resumed is `interrupted`; a run that hasn't written for too long is `unfinished`.
    """
    if stop := facts.first("run_stop"):
        if facts.not_a_result in ("smoke", "profile"):
            return facts.not_a_result
        if stop.metadata.get("interrupted"):
            return "interrupted"
        stated = stop.metadata.get("status")
        best_accuracy = facts.best_accuracy or 0.0
        target = target_of(log, facts) or 0.0
        if stated == "success" and best_accuracy < target:
            return MISSED
        return stated if isinstance(stated, str) else "unfinished"
    times_s = [event.time_ms / 1e3 for event in facts.events()]
    longest_gap_s = max((later - earlier for earlier, later in pairwise(times_s)), default=0.0)
    if _silence_s(log) <= max(_QUIET_S, _QUIET_GAPS * longest_gap_s):
        return "running"
    return "unfinished" if facts.started_ms is not None else "not started"


def _silence_s(log: Path) -> float:
    """Return the seconds since a run last wrote to its log or its metrics."""
    written = [0.0]
    for path in (log, log.with_suffix("") / "metrics.jsonl"):
        with suppress(OSError):  # the file doesn't exist yet, was removed, or its file system is temporarily away
            written.append(path.stat().st_mtime)
    return time.time() - max(written)


def arranged(rows: Sequence[dict[str, Any]], column: str) -> list[dict[str, Any]]:
    """Return rows sorted by a column; rows without a value come last."""
    return sorted(rows, key=lambda row: (row[column] is None, row[column]))


def list_text(rows: Sequence[dict[str, Any]]) -> str:
    """Return rows as a table for a terminal."""
    header = [COLUMNS[field].heading for field in LISTED]
    lines = [[shown_path(Path(row["log"])), *cells(row, LISTED[1:])] for row in rows]  # paths are never shortened
    return "\n".join(aligned(header, lines, left=len(header)))
