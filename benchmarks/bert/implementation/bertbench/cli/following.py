"""Commands that read runs: watch one, list them, report and compare them, record them in trackers."""

import argparse
import shutil
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from bertbench.cli.arguments import add_flag, add_path, add_ruleset, emit, say, write_file
from bertbench.common.errors import ConfigError, DataError, RunError
from bertbench.common.paths import runs_folder, shown_path

if TYPE_CHECKING:
    from bertbench.report.followed_run import FollowedRun
    from bertbench.report.run_state import RunState

_EVERY_S = 1.0
_OWN_WIDTH = 120  # if the output isn't a terminal and COLUMNS isn't set
_LONGEST_REASON = 300


def add_watch_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the run."""
    add_path(
        parser,
        "run",
        "RUN",
        "a log, its folder, or a folder of runs, whose newest run is shown (default: LOGDIR)",
        nargs="?",
    )
    add_flag(parser, "--once", "print the page once, even for an unfinished run")


def watch(arguments: argparse.Namespace) -> int:
    """Show a run's page from its files, redrawn each second until it ends; with --json print its current state."""
    from bertbench.report.followed_run import FollowedRun
    from bertbench.report.rank_processes import ranks_on_this_machine
    from bertbench.report.run_list import check_log, run_logs, silence_s
    from bertbench.report.run_state import earlier_runs, state_of

    newest = min(run_logs(arguments.run or runs_folder()), key=silence_s)
    check_log(newest)
    run = FollowedRun(newest)
    earlier = earlier_runs(newest)

    def look() -> "RunState":
        run.read()
        return state_of(run, ranks_on_this_machine(newest), earlier)

    if arguments.json:
        now = look()
        emit(arguments.json, {**asdict(now), "gpus": now.world_size})
        return 0
    from rich.console import Console
    from rich.live import Live

    from bertbench.report.terminal_page import terminal_page

    console = Console(width=None if sys.stdout.isatty() else shutil.get_terminal_size((_OWN_WIDTH, 0)).columns)
    state = look()
    if arguments.once or not sys.stdout.isatty() or state.status != "running":
        console.print(terminal_page(state, run, console.width))
        return 0
    with Live(terminal_page(state, run, console.width), console=console, auto_refresh=False) as live:
        while state.status == "running":
            time.sleep(_EVERY_S)
            with suppress(OSError):  # a file system may come back; until then the page stays as it is
                state = look()
            live.update(terminal_page(state, run, console.width), refresh=True)
    return 0


def add_report_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the runs, the rules they are judged by, and what to show of them."""
    from bertbench.report.run_list import LISTED

    add_path(parser, "results", "RESULTS", "logs or folders of logs (default: runs/, or LOGDIR)", nargs="*")
    add_ruleset(parser, "ruleset to judge by", of_each_log=True)
    add_flag(parser, "--details", "add start-up, wall clock and energy")
    add_path(parser, "--html", "FILE", "also write an HTML page")
    add_flag(parser, "--list", "list the runs, one per row, with status and verdict")
    parser.add_argument(
        "--sort", choices=LISTED, metavar="COLUMN",
        help=f"with --list: column to sort by, one of {', '.join(LISTED)} (default: log)",
    )  # fmt: skip


def report(arguments: argparse.Namespace) -> int:
    """Print the table of the runs from their logs only, or list them; write the page if requested."""
    folders: list[Path] = arguments.results or [runs_folder()]
    if arguments.list:
        if arguments.html or arguments.details:
            raise ConfigError("--list prints rows only; leave --html and --details out")
        return _list_runs(arguments, folders)
    if arguments.sort:
        raise ConfigError(f"--sort {arguments.sort}: sorts the rows of --list; add that, or leave --sort out")
    from bertbench.report.report_page import report_page
    from bertbench.report.run_groups import judged_groups, summarized
    from bertbench.report.run_tables import report_text

    groups = judged_groups(folders, arguments.ruleset)
    contents = [summarized(group) for group in groups]
    if arguments.html:
        write_file(arguments.html, report_page(groups, contents, arguments.html.parent))
    emit(arguments.json, contents, "\n\n".join(report_text(content, arguments.details) for content in contents))
    return 0


def _list_runs(arguments: argparse.Namespace, folders: list[Path]) -> int:
    """Print a row for each run, smoke tests and profiles included."""
    from bertbench.report.run_list import NO_LOG, arranged, check_log, list_text, listed, run_logs, why_no_log

    logs = [log for folder in folders for log in run_logs(folder)]
    rows = [listed(log, arguments.ruleset) for log in logs]
    no_logs = [log for log, row in zip(logs, rows, strict=True) if row["status"] == NO_LOG]
    if len(no_logs) == len(logs):
        check_log(logs[0])  # raises an error with the reason
    say(*map(why_no_log, no_logs))
    if arguments.sort not in (None, "log"):  # run_logs sorts by log, with 9 before 10
        rows = arranged(rows, arguments.sort)
    emit(arguments.json, rows, list_text(rows))
    return 0


def add_compare_arguments(parser: argparse.ArgumentParser) -> None:
    """Add both sides and the page."""
    for name in ("a", "b"):
        add_path(parser, name, name.upper(), "a log, or a folder of logs")
    add_ruleset(parser, "ruleset to judge by; runs that fail are left out of all means", of_each_log=True)
    add_path(parser, "--html", "FILE", "also write an HTML page with curves")


def compare(arguments: argparse.Namespace) -> int:
    """Print the differences between two runs, or two sets of runs; write the page if requested."""
    from bertbench.report.comparison import compared
    from bertbench.report.comparison_page import comparison_page, comparison_text

    comparison = compared(arguments.a, arguments.b, arguments.ruleset)
    if arguments.html:
        write_file(arguments.html, comparison_page(comparison))
    emit(arguments.json, comparison, comparison_text(comparison))
    return 0


def add_track_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the runs and the tracker."""
    from bertbench.report.trackers import TRACKERS

    add_path(parser, "runs", "RUNS", "logs or folders of logs", nargs="+")
    parser.add_argument("--to", choices=TRACKERS, required=True, help="tracker to copy to")
    add_path(parser, "--out", "DIR", "folder to write to (default: one with the tracker's name, in runs/ or LOGDIR)")


def track(arguments: argparse.Namespace) -> int:
    """Record finished runs in a tracker from their files, and replace earlier records of them."""
    from bertbench.report.followed_run import FollowedRun
    from bertbench.report.run_list import run_logs
    from bertbench.report.trackers import check_installed, folder_of
    from compliance.read.log import read_events

    logs = [log for path in arguments.runs for log in run_logs(path)]
    for log in logs:
        read_events(log)  # raises CannotJudge if it isn't a log and there is nothing to record
    check_installed([arguments.to])
    out = arguments.out or folder_of(arguments.to, runs_folder())
    followed = [FollowedRun(log) for log in logs]
    names = [run.name for run in followed]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise DataError(
            f"{', '.join(twice)}: two logs have this name and would share a record; track them one at a time"
        )
    for run in followed:
        _record(run, arguments.to, out)
    content = [{"log": str(run.log), "name": run.name, "steps": len(run.rows)} for run in followed]
    lines = (f"{shown_path(run.log)}: {len(run.rows):,} steps to {arguments.to} as {run.name}" for run in followed)
    emit(arguments.json, content, *lines, f"in {shown_path(out)}")
    return 0


def _record(run: "FollowedRun", tracker: str, out: Path) -> None:
    from bertbench.report.feed import Feed
    from bertbench.report.run_list import status
    from bertbench.report.trackers import open_tracker

    try:
        feed = Feed(run, open_tracker(tracker, run, out))
        feed.forward(list(run.rows))
        feed.close(status(run.log, run.facts))
    except Exception as error:  # each tracker raises errors of its own kind
        reason = " ".join(str(error).split())[:_LONGEST_REASON]
        message = f"{run.log}: {tracker} couldn't record it in {out} ({reason}); name another folder with --out"
        raise RunError(message) from error
