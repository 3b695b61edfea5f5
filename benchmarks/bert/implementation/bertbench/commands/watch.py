"""`bertbench watch [RUN]`: show a run's page in the terminal from its files, redrawn each second while it runs."""

import argparse
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

from bertbench.commands import add_flag, add_path, emit
from bertbench.common.errors import DataError
from bertbench.common.paths import runs_folder, shown_path
from bertbench.report.listing import run_logs, silence_s
from bertbench.tracking.ranks import elsewhere, ranks_of, sampled
from bertbench.tracking.reading import FollowedRun
from bertbench.tracking.state import RunState, earlier_runs, state_of
from compliance.judge import named_run

_EVERY_S = 1.0
_FIRST_LOOK_S = 0.3  # between two samples of the ranks' activity
_OWN_WIDTH = 120  # if the output is not a terminal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which run."""
    add_path(parser, "run", "RUN", "a log, or its folder (default: the newest run in LOGDIR)", nargs="?")
    add_flag(parser, "--once", "print the page once, even for an unfinished run")


def run(arguments: argparse.Namespace) -> int:
    """Show the page until the run ends, or once; with --json print the run's current state."""
    followed = FollowedRun(_log(arguments.run))
    look = _looker(followed)
    if arguments.json:
        emit(True, look())
        return 0
    from rich.console import Console  # noqa: PLC0415 - --json draws nothing
    from rich.live import Live  # noqa: PLC0415 - as above

    from bertbench.tracking.page import page  # noqa: PLC0415 - it imports rich

    console = Console(width=None if sys.stdout.isatty() else _OWN_WIDTH)
    state = look()
    if arguments.once or not sys.stdout.isatty() or state.status != "running":
        console.print(page(state, followed, console.width))
        return 0
    with Live(page(state, followed, console.width), console=console, auto_refresh=False) as live:
        while state.status == "running":
            time.sleep(_EVERY_S)
            state = look()
            live.update(page(state, followed, shutil.get_terminal_size().columns), refresh=True)
    return 0


def _looker(followed: FollowedRun) -> Callable[[], RunState]:
    """Return a function that reads the run's files and samples its ranks on each call."""
    earlier = earlier_runs(followed.log)
    samples = sampled(lambda: ranks_of(followed.log))
    if next(samples):
        time.sleep(_FIRST_LOOK_S)

    def look() -> RunState:
        followed.read()
        return state_of(followed, [*next(samples), *elsewhere(followed.folder)], earlier)

    return look


def _log(given: Path | None) -> Path:
    """Return the log of a run, given its log, its folder, or None for the newest in LOGDIR."""
    if given is None:
        logs = run_logs(runs_folder())
        if not logs:
            raise DataError(f"{shown_path(runs_folder())}: found no run there; start one with `bertbench train`")
        return min(logs, key=silence_s)
    named = [given] if given.is_file() else named_run(given)
    if not named:
        raise DataError(f"{given}: found no run there; give its log, such as runs/SYSTEM/bert/result_0.txt")
    return named[0]
