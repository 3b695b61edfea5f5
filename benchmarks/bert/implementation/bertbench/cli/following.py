"""Commands that read runs: report and list them, compare them, copy them to trackers."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bertbench.cli.arguments import add_flag, add_path, add_ruleset, emit, say, write_file
from bertbench.common.errors import ConfigError, DataError, RunError
from bertbench.common.paths import runs_folder, shown_path
from compliance.read.record import printable

if TYPE_CHECKING:
    from bertbench.runs.groups import Group
    from bertbench.runs.run_summary import RunSummary

_LONGEST_REASON = 300


def add_report_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the runs, the rules they are judged by, and what to show of them."""
    from bertbench.runs.listing import LISTED

    add_path(parser, "results", "RESULTS", "logs or folders of logs (default: runs/, or LOGDIR)", nargs="*")
    add_ruleset(parser, "ruleset to judge by", of_each_log=True)
    add_flag(parser, "--details", "add start-up, wall clock and energy")
    add_flag(
        parser, "--follow",
        "print again as runs grow, every 5 seconds at most, until they end; into a pipe or a file, print the tables at "
        "the end only, and progress on standard error",
    )  # fmt: skip
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
        if arguments.html or arguments.details or arguments.follow:
            raise ConfigError("--list prints rows only, and once; leave --html, --details and --follow out")
        return _list_runs(arguments, folders)
    if arguments.sort:
        raise ConfigError(f"--sort {arguments.sort}: sorts the rows of --list; add that, or leave --sort out")
    if not arguments.follow:
        _report(arguments, folders)
        return 0
    if arguments.json:
        raise ConfigError("--follow prints tables; leave --json or --follow out")
    _follow(arguments, folders)
    return 0


def _report(arguments: argparse.Namespace, folders: list[Path], more: Sequence[str] = ()) -> None:
    """Print the tables of the runs, then the lines in `more`; write the page if requested."""
    from bertbench.runs.tables import report_text

    groups = _groups(arguments, folders)
    text = "\n\n".join(report_text(group, arguments.details) for group in groups)
    emit(arguments, [group.fields() for group in groups], text, *more)


def _groups(arguments: argparse.Namespace, folders: list[Path]) -> list["Group"]:
    """Judge the runs, and write the page if requested."""
    from bertbench.runs.groups import judged_groups

    groups = judged_groups(folders, arguments.ruleset)
    if arguments.html:
        from bertbench.runs.report_page import report_page

        write_file(arguments.html, report_page(groups, arguments.html.parent))
    return groups


def _follow(arguments: argparse.Namespace, folders: list[Path]) -> None:
    """Print the tables whenever the runs have grown, each time with how far the running ones are.

    The reader of a pipe or a file gets the tables once, at the end. Until then, standard error says how far the runs
    are.
    """
    from bertbench.runs.listing import each_growth, progress_line
    from bertbench.runs.run_summary import is_empty

    on_terminal = sys.stdout.isatty()
    for number, logs in enumerate(each_growth(folders)):
        has_lines = not all(map(is_empty, logs))
        if has_lines:
            progress = [line for log in logs if (line := progress_line(log))]
        else:
            progress = [f"{shown_path(logs[0])}: the run hasn't written a line yet"]
        if not on_terminal:
            say(*progress)
            if has_lines and arguments.html:
                _groups(arguments, folders)
            continue
        if number:
            print()
        if has_lines:
            _report(arguments, folders, progress)
        else:
            print(*progress)
        sys.stdout.flush()
    if not on_terminal:
        _report(arguments, folders)
    if number == 0:
        say("no run is in progress; start one first to follow it")


def _list_runs(arguments: argparse.Namespace, folders: list[Path]) -> int:
    """Print a row for each run, smoke tests and profiles included."""
    from bertbench.runs.judged_runs import judged_runs
    from bertbench.runs.listing import arranged, list_text, listed, run_logs
    from compliance.read.source import CannotJudge

    logs = [log for folder in folders for log in run_logs(folder)]
    runs = judged_runs(logs, arguments.ruleset)
    no_logs = [judged.why_no_log for judged in runs if not judged.is_log]
    if len(no_logs) == len(runs):
        raise CannotJudge(no_logs[0])
    say(*map(printable, no_logs))
    rows = [*map(listed, runs)]
    if arguments.sort not in (None, "log"):  # run_logs sorts by log, with 9 before 10
        rows = arranged(rows, arguments.sort)
    emit(arguments, rows, list_text(rows))
    return 0


def add_compare_arguments(parser: argparse.ArgumentParser) -> None:
    """Add both sides, and the rules they are judged by."""
    for name in ("a", "b"):
        add_path(parser, name, name.upper(), "a log, or a folder of logs")
    add_ruleset(parser, "ruleset to judge by; runs that fail are left out of all means", of_each_log=True)


def compare(arguments: argparse.Namespace) -> int:
    """Print the differences between two runs, or two sets of runs."""
    from bertbench.runs.comparison import compared, comparison_text

    comparison = compared(arguments.a, arguments.b, arguments.ruleset)
    emit(arguments, comparison, comparison_text(comparison))
    return 0


def add_track_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the runs and the tracker."""
    from bertbench.runs.trackers import TRACKERS

    add_path(parser, "runs", "RUNS", "logs or folders of logs", nargs="+")
    parser.add_argument("--to", choices=TRACKERS, required=True, help="tracker to copy to")
    add_path(parser, "--out", "DIR", "folder to write to (default: one with the tracker's name, in runs/ or LOGDIR)")
    parser.epilog = (
        "Copies what a run's files hold now. Of a run that still trains, these are the steps so far: repeat the "
        "command, and the new copy replaces the earlier one. W&B's files are written without its server; `wandb sync` "
        "uploads them."
    )


def track(arguments: argparse.Namespace) -> int:
    """Copy runs to a tracker from their files, and replace earlier copies of them."""
    from bertbench.runs.listing import run_logs
    from bertbench.runs.run_summary import read_summary
    from bertbench.runs.trackers import check_installed, tracked_name

    logs = [log for path in arguments.runs for log in run_logs(path)]
    runs = [read_summary(log) for log in logs]
    check_installed(arguments.to)
    out = arguments.out or runs_folder() / arguments.to
    names = [tracked_name(run) for run in runs]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise DataError(
            f"{', '.join(twice)}: two logs have this name and would share a record; track them one at a time"
        )
    content = []
    lines = []
    for run, name in zip(runs, names, strict=True):
        steps = _copy(run, arguments.to, out)
        content.append({"log": str(run.log), "name": name, "steps": steps})
        lines.append(f"{shown_path(run.log)}: {steps:,} steps to {arguments.to} as {name}")
    emit(arguments, content, *lines, f"in {shown_path(out)}")
    return 0


def _copy(run: "RunSummary", name: str, out: Path) -> int:
    """Copy a run to a tracker; return the number of steps. Raises RunError if the tracker refuses it."""
    from bertbench.runs.trackers import final_numbers, open_tracker, tracked_steps

    steps = tracked_steps(run)
    try:
        tracker = open_tracker(name, run, out)
        tracker.record(steps)
        tracker.close(run.status, final_numbers(run))
    except Exception as error:  # each tracker raises errors of its own kind
        reason = " ".join(str(error).split())[:_LONGEST_REASON]
        message = f"{run.log}: {name} couldn't record it in {out} ({reason}); name another folder with --out"
        raise RunError(message) from error
    return len(steps)
