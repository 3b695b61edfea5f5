"""`bertbench track RUNS... --to TRACKER`: record finished runs in a tracker, from their files."""

import argparse
from pathlib import Path

from bertbench.commands import add_path, emit
from bertbench.common.errors import DataError, RunError
from bertbench.common.paths import runs_folder, shown_path
from bertbench.report.feed import Feed
from bertbench.report.followed_run import FollowedRun
from bertbench.report.run_list import run_logs, status
from bertbench.report.trackers import TRACKERS, check_installed, folder_of, open_tracker
from compliance.read.log import read_events

_LONGEST_REASON = 300


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the runs and the tracker."""
    add_path(parser, "runs", "RUNS", "logs or folders of logs", nargs="+")
    parser.add_argument("--to", choices=TRACKERS, required=True, help="the tracker")
    add_path(parser, "--out", "DIR", "folder of the records (default: the tracker's name in runs/, or LOGDIR)")


def run(arguments: argparse.Namespace) -> int:
    """Record every run, and replace its earlier record."""
    logs = [log for path in arguments.runs for log in run_logs(path)]
    for log in logs:
        read_events(log)  # raises CannotJudge if it is no log: there is nothing to record
    check_installed([arguments.to])
    out = arguments.out or folder_of(arguments.to, runs_folder())
    found = [FollowedRun(log) for log in logs]
    names = [run.name for run in found]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise DataError(f"{', '.join(twice)}: named by two logs, which would share a record; track them one at a time")
    for one in found:
        _record(one, arguments.to, out)
    content = [{"run": shown_path(one.log), "name": one.name, "steps": len(one.rows)} for one in found]
    lines = (f"{one['run']}: {one['steps']:,} steps to {arguments.to} as {one['name']}" for one in content)
    emit(arguments.json, content, *lines, f"in {shown_path(out)}")
    return 0


def _record(one: FollowedRun, to: str, out: Path) -> None:
    try:
        feed = Feed(one, open_tracker(to, one, out))
        feed.forward(list(one.rows))
        feed.close(status(one.log, one.facts))
    except Exception as error:  # each tracker raises errors of its own kind
        said = " ".join(str(error).split())[:_LONGEST_REASON]
        raise RunError(f"{one.log}: {to} refused it in {out} ({said}); name another folder with --out") from error
