"""Find the logs that a path names: a file, a folder's result_*.txt at any level, or a run without its .txt."""

import os
from collections.abc import Callable
from fnmatch import fnmatch
from itertools import islice
from pathlib import Path

from compliance.read.record import TOKEN
from compliance.read.source import STDIN, CannotJudge, open_plain

LOG_PATTERN = "result_*.txt"
_OTHER_ENDINGS = (".txt", ".log")
_BEGINNING = 1 << 20  # bytes; a job's output has other lines before the log's
_MOST_OTHERS_READ = 1_000


def find_logs(path: Path) -> list[Path]:
    """Return the path itself, or a folder's result_*.txt at any level, without following links to folders.

    If there are none, or if there is nothing at the path, return the log with this name and .txt (see `named_run`).
    Raises CannotJudge if there is no such log either.
    """
    if path == STDIN:
        return [path]
    try:
        names_a_run = not path.exists() and bool(named_run(path))
        if not path.is_dir() and not names_a_run:
            path.lstat()
            return [path]
    except (OSError, ValueError) as error:
        raise CannotJudge(f"{path}: no such file or folder; give a log or a folder of logs") from error
    logs = logs_below(path, lambda name: fnmatch(name, LOG_PATTERN))
    if not logs:
        raise CannotJudge(f"{path}: found no {LOG_PATTERN} in this folder; give a folder of logs")
    return logs


def other_logs(path: Path) -> list[Path]:
    """Return the files of a folder, at any level, that look like logs but aren't named result_*.txt.

    They end in .txt or .log, and have an MLPerf line at their beginning.
    """

    def is_named_like_another_log(name: str) -> bool:
        return name.endswith(_OTHER_ENDINGS) and not fnmatch(name, LOG_PATTERN)

    if not os.path.isdir(path):  # noqa: PTH112 - Path.is_dir raises if permission is missing
        return []
    files = (
        Path(folder, name) for folder, _, names in os.walk(path) for name in names if is_named_like_another_log(name)
    )
    return sorted(file for file in islice(files, _MOST_OTHERS_READ) if _begins_as_log(file))


def _begins_as_log(file: Path) -> bool:
    try:
        with open_plain(file) as stream:
            return TOKEN.encode() in stream.read(_BEGINNING)
    except CannotJudge:
        return False


def logs_below(path: Path, is_log: Callable[[str], bool]) -> list[Path]:
    """Return a folder's logs at any level, sorted by folder and number, or the log of the run that the path names."""
    logs = (Path(folder, name) for folder, _, names in os.walk(path) for name in names if is_log(name))
    return sorted(logs, key=lambda log: (log.parent, len(log.name), log.name)) or named_run(path)


def named_run(path: Path) -> list[Path]:
    """Return the log of the run that a path names without .txt, as a run's folder does; empty if there is none."""
    log = Path(f"{path}.txt")
    return [log] if log.is_file() else []


def is_package(path: Path) -> bool:
    """Return whether a folder has a package's layout."""
    return (path / "results").is_dir() and (path / "systems").is_dir()
