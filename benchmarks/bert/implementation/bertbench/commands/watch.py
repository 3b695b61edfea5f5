"""`bertbench watch [RUN]`: show a run's page in the terminal from its files, redrawn each second while it runs."""

import argparse
import shutil
import sys
import time
from contextlib import suppress

from bertbench.commands import add_flag, add_path, emit
from bertbench.common.paths import runs_folder
from bertbench.report.followed_run import FollowedRun
from bertbench.report.rank_processes import ranks_on_this_machine as ranks_of
from bertbench.report.run_list import check_log, run_logs, silence_s
from bertbench.report.run_state import RunState, earlier_runs, state_of

_EVERY_S = 1.0
_OWN_WIDTH = 120  # if the output is no terminal and COLUMNS is not set


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which run."""
    add_path(parser, "run", "RUN", "a log, its folder, or a folder of runs: its newest (default: LOGDIR)", nargs="?")
    add_flag(parser, "--once", "print the page once, even for an unfinished run")


def run(arguments: argparse.Namespace) -> int:
    """Show the page until the run ends, or once; with --json print the run's current state."""
    log = min(run_logs(arguments.run or runs_folder()), key=silence_s)  # the newest
    check_log(log)
    followed, earlier = FollowedRun(log), earlier_runs(log)

    def look() -> RunState:
        followed.read()
        return state_of(followed, ranks_of(log), earlier)

    if arguments.json:
        emit(True, look())
        return 0
    from rich.console import Console  # noqa: PLC0415 - --json draws nothing
    from rich.live import Live  # noqa: PLC0415 - as above

    from bertbench.report.terminal_page import terminal_page as page  # noqa: PLC0415 - it imports rich

    console = Console(width=None if sys.stdout.isatty() else shutil.get_terminal_size((_OWN_WIDTH, 0)).columns)
    state = look()
    if arguments.once or not sys.stdout.isatty() or state.status != "running":
        console.print(page(state, followed, console.width))
        return 0
    with Live(page(state, followed, console.width), console=console, auto_refresh=False) as live:
        while state.status == "running":
            time.sleep(_EVERY_S)
            with suppress(OSError):  # of a file system that comes back: the page stays as it is
                state = look()
            live.update(page(state, followed, console.width), refresh=True)
    return 0
