"""Look again and again at runs whose files grow, for `bertbench report --follow`."""

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from bertbench.common.errors import ConfigError
from bertbench.common.markup import cell
from bertbench.runs.run_summary import RUNNING, RunSummary, is_empty, read_summary, summary_of
from compliance.read.find import find_logs
from compliance.read.run import number
from compliance.read.source import STDIN, CannotJudge

_EVERY_S = 5.0
FileVersions = dict[Path, tuple[int, int]]
"""The size and the modification time in ns of each file that exists."""


def each_growth(folders: Sequence[Path], every_s: float = _EVERY_S) -> Iterator[list[Path]]:
    """Yield the logs in `folders` now, and again whenever they or their metrics have changed, until no run is running.

    Raises ConfigError for standard input, which can't be read again, and CannotJudge if a folder has no log.
    """
    if STDIN in folders:
        raise ConfigError("--follow reads files again and again; name a log or a folder instead of standard input")
    seen: FileVersions = {}
    while True:
        logs = [log for folder in folders for log in find_logs(folder)]
        running = any(map(_is_running, logs))  # asked first: what a run writes from now on is a change
        versions = _versions(logs)
        if versions != seen:
            seen = versions
            yield logs
        if not running:
            return
        time.sleep(every_s)


def has_begun(log: Path) -> bool:
    """Return whether a log has a line; a run's log is empty until its ranks have met."""
    return not is_empty(log)


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
        for file in (log, log.with_suffix("") / "metrics.jsonl"):
            with suppress(OSError):
                stat = file.stat()
                versions[file] = (stat.st_size, stat.st_mtime_ns)
    return versions
