"""List the runs in a folder of logs, one row for each, with its status and the judge's verdict."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bertbench.common.errors import DataError
from bertbench.common.paths import shown_path
from bertbench.common.tables import aligned
from bertbench.runs.judged_runs import JudgedRun
from bertbench.runs.tables import COLUMNS, cells
from compliance.read.find import logs_below

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
