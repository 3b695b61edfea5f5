"""`bertbench watch [RUN]`: show a run's page in the terminal from its files, redrawn each second while it runs."""

import argparse
import shutil
import sys
import time
from collections.abc import Callable

from bertbench.commands import add_flag, add_path, emit
from bertbench.common.paths import runs_folder
from bertbench.report.listing import run_logs, silence_s
from bertbench.tracking.ranks import sampled
from bertbench.tracking.reading import FollowedRun
from bertbench.tracking.state import RunState, earlier_runs, state_of

_EVERY_S = 1.0
_FIRST_LOOK_S = 0.3  # between two samples of the ranks' activity
_OWN_WIDTH = 120  # if the output is not a terminal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which run."""
    add_path(parser, "run", "RUN", "a log, its folder, or a folder of runs: its newest (default: LOGDIR)", nargs="?")
    add_flag(parser, "--once", "print the page once, even for an unfinished run")


def run(arguments: argparse.Namespace) -> int:
    """Show the page until the run ends, or once; with --json print the run's current state."""
    followed = FollowedRun(min(run_logs(arguments.run or runs_folder()), key=silence_s))  # the newest
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
    samples = sampled(followed.log)
    if next(samples):
        time.sleep(_FIRST_LOOK_S)

    def look() -> RunState:
        followed.read()
        return state_of(followed, next(samples), earlier)

    return look
