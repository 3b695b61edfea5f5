"""`bertbench rcp RESULTS...`: make a reference convergence point from recorded runs, or judge runs by one."""

import argparse
import json
from pathlib import Path

from bertbench.commands import emit, write_file
from bertbench.report.reference import LEAST_RUNS, Verdict, judged, reference_of
from bertbench.report.settings import read_runs
from compliance.official import DEFAULT_RULESET, rulesets


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the runs and the reference to write or to judge by."""
    parser.add_argument(
        "results", nargs="+", type=Path, metavar="RESULTS", help="logs or folders of logs of one system"
    )
    task = parser.add_mutually_exclusive_group(required=True)
    task.add_argument(
        "--out", type=Path, metavar="FILE", help=f"write samples to converge as a reference; needs {LEAST_RUNS} runs"
    )
    task.add_argument("--against", type=Path, metavar="FILE", help="judge the runs by the reference in this file")
    parser.add_argument(
        "--ruleset", default=DEFAULT_RULESET, choices=rulesets(), metavar="R",
        help=f"ruleset of the official checker (default {DEFAULT_RULESET})",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Return exit code 1 if the runs converge faster or more slowly than the reference."""
    runs = read_runs(arguments.results)
    if arguments.out:
        reference = reference_of(runs)
        write_file(arguments.out, json.dumps(reference, indent=2) + "\n", "--out")
        emit(arguments.json, reference)
        return 0
    verdict = judged(runs, arguments.against, arguments.ruleset)
    emit(arguments.json, verdict._asdict(), _text(verdict))
    return int(verdict.verdict != "pass")


def _text(found: Verdict) -> str:
    lines = [f"{found.verdict}: {found.message}"]
    if found.mean is not None:
        lines.append(f"mean of {found.runs} runs, fastest and slowest dropped: {found.mean:,.0f} samples")
    if found.reference_mean is not None:
        between = f"{found.least_mean:,.0f} to {found.most_mean:,.0f}"
        lines.append(f"reference: {found.reference_mean:,.0f}; means from {between} pass")
    if found.note:
        lines.append(f"note: {found.note}")
    return "\n".join(lines)
