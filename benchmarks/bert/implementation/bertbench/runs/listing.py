"""Find the runs in folders of logs: list them, one row for each, or look again and again at those that grow."""

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from bertbench.common.errors import ConfigError, DataError
from bertbench.common.markup import cell
from bertbench.common.paths import METRICS, folder_of, shown_path
from bertbench.common.tables import aligned
from bertbench.runs.judged_runs import JudgedRun
from bertbench.runs.run_summary import RUNNING, RunSummary, read_summary, summary_of
from bertbench.runs.tables import COLUMNS, cells
from compliance.read.find import find_logs, logs_below
from compliance.read.run import number
from compliance.read.source import STDIN, CannotJudge

_LOG_NAME = re.compile(r"(result|smoke|profile)_\d+\.txt")
LISTED = (
    "log", "system", "seed", "status", "time_to_train_s", "best_accuracy", "samples_per_s", "commit", "verdict",
)  # fmt: skip
"""The columns of the table."""
_FIELDS = (
    "log", "system", "seed", "status", "time_to_train_s", "best_accuracy", "target", "samples_per_s", "commit",
    "verdict",
)  # fmt: skip
"""The fields of `report --list --json`."""
_EVERY_S = 5.0  # between two looks at runs that grow
FileVersions = dict[Path, tuple[int, int]]
"""The size and the modification time in ns of each file that exists."""


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


def listed(judged: JudgedRun) -> dict[str, Any]:
    """Return the row of one run; an unknown field is None."""
    fields = judged.fields()
    return {name: fields[name] for name in _FIELDS}


def arranged(rows: Sequence[dict[str, Any]], column: str) -> list[dict[str, Any]]:
    """Return rows sorted by a column; rows without a value come last."""
    return sorted(rows, key=lambda row: (row[column] is None, row[column]))


def list_text(rows: Sequence[dict[str, Any]]) -> str:
    """Return rows as a table for a terminal."""
    header = [COLUMNS[field].heading for field in LISTED]
    lines = [[shown_path(Path(row["log"])), *cells(row, LISTED[1:])] for row in rows]  # paths are never shortened
    return "\n".join(aligned(header, lines, left=len(header)))


def each_growth(folders: Sequence[Path], every_s: float = _EVERY_S) -> Iterator[list[Path]]:
    """Yield the logs in `folders` now, and again whenever they have changed, until no run is running.

    A log has changed if it or its metrics have grown, or if its run no longer counts as running.

    Raises ConfigError for standard input, which can't be read again, and CannotJudge if a folder has no log.
    """
    if STDIN in folders:
        raise ConfigError("--follow reads files again and again; name a log or a folder instead of standard input")
    seen: tuple[list[Path], FileVersions] | None = None
    while True:
        logs = [log for folder in folders for log in find_logs(folder)]
        running = [*filter(_is_running, logs)]  # asked first: what a run writes from now on is a change
        now = running, _versions(logs)
        if now != seen:
            seen = now
            yield logs
        if not running:
            return
        time.sleep(every_s)


def progress_line(log: Path) -> str:
    """Return how far a running run is, from the last line of its metrics; empty if the run isn't running."""
    run = _summary(log)
    if run.status != RUNNING:
        return ""
    row = run.steps[-1] if run.steps else {}
    step = number(row.get("step"))
    if step is None:
        return f"running: {cell(log.stem)}: no step is in its files yet"
    parts = [f"step {step:,.0f}"]
    for field, form in (("samples", "{:,.0f} samples"), ("loss", "loss {:.4f}"), ("step_ms", "{:,.1f} ms a step")):
        value = number(row.get(field))
        if value is not None:
            parts.append(form.format(value))
    return f"running: {cell(log.stem)}: {', '.join(parts)}"


def _is_running(log: Path) -> bool:
    return _summary(log).status == RUNNING


def _summary(log: Path) -> RunSummary:
    try:
        return read_summary(log)
    except CannotJudge:
        return summary_of(log, None)


def _versions(logs: Sequence[Path]) -> FileVersions:
    versions = {}
    for log in logs:
        for file in (log, folder_of(log) / METRICS):
            with suppress(OSError):
                stat = file.stat()
                versions[file] = (stat.st_size, stat.st_mtime_ns)
    return versions
