"""`bertbench rcp RESULTS...`: make a reference convergence point from recorded runs, or judge runs by one."""

import argparse
import json

from bertbench.commands import add_path, add_ruleset, emit, write_file
from bertbench.report.reference import LEAST_RUNS, reference_of
from bertbench.report.reference import ReferenceVerdict as Verdict
from bertbench.report.reference import judged_by_reference as judged
from bertbench.run_files.run_settings import read_runs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the runs and the reference to write or to judge by."""
    add_path(parser, "results", "RESULTS", "logs or folders of logs of one system", nargs="+")
    task = parser.add_mutually_exclusive_group(required=True)
    add_path(task, "--out", "FILE", f"write samples to converge as a reference; needs {LEAST_RUNS} runs")
    add_path(task, "--against", "FILE", "judge the runs by the reference in this file")
    add_ruleset(parser, "ruleset of the verdicts and of the official checker")


def run(arguments: argparse.Namespace) -> int:
    """Return exit code 1 if the runs converge faster or more slowly than the reference."""
    runs = read_runs(arguments.results)
    if arguments.out:
        reference = reference_of(runs, arguments.ruleset)
        write_file(arguments.out, json.dumps(reference, indent=2) + "\n", "--out")
        emit(arguments.json, reference)
        return 0
    verdict = judged(runs, arguments.against, arguments.ruleset)
    emit(arguments.json, verdict._asdict(), *_text(verdict))
    return int(verdict.verdict != "pass")


def _text(found: Verdict) -> list[str]:
    lines = [f"{found.verdict}: {found.message}"]
    if found.mean is not None:
        lines.append(
            f"MLPerf's mean of {found.runs} runs, without the fastest and the slowest: {found.mean:,.0f} samples"
        )
    if found.reference_mean is not None:
        between = f"{found.least_mean:,.0f} to {found.most_mean:,.0f}"
        lines.append(f"reference: {found.reference_mean:,.0f}; means from {between} pass")
    return lines
