"""Commands about results: judge logs, make and use reference convergence points, build a submission package."""

import argparse
import json
from typing import TYPE_CHECKING

from bertbench.cli.arguments import add_flag, add_path, add_ruleset, emit, write_file

if TYPE_CHECKING:
    from bertbench.report.reference import ReferenceVerdict


def add_judge_arguments(parser: argparse.ArgumentParser) -> None:
    """Add no arguments: the judge parses its own words."""


def judge(arguments: argparse.Namespace) -> int:
    """Run `python -m compliance` with the words of the command line, and return its exit code."""
    from compliance.__main__ import main

    return main(arguments.words, "bertbench judge")


def add_rcp_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the runs, and the reference to write or to compare them with."""
    from bertbench.report.reference import LEAST_RUNS

    add_path(parser, "results", "RESULTS", "logs or folders of logs of one system", nargs="+")
    task = parser.add_mutually_exclusive_group(required=True)
    add_path(task, "--out", "FILE", f"write the runs' samples to converge as a reference; needs {LEAST_RUNS} runs")
    add_path(task, "--against", "FILE", "compare the runs with the reference in this file")
    add_ruleset(parser, "ruleset to judge by, also for the official checker")


def rcp(arguments: argparse.Namespace) -> int:
    """Make a reference convergence point, or compare runs with one; return 1 if they are faster or slower than it."""
    from bertbench.report.reference import judged_by_reference, reference_of
    from bertbench.run_files.run_settings import read_runs

    runs = read_runs(arguments.results)
    if arguments.out:
        reference = reference_of(runs, arguments.ruleset)
        write_file(arguments.out, json.dumps(reference, indent=2) + "\n", "--out")
        emit(arguments.json, reference)
        return 0
    verdict = judged_by_reference(runs, arguments.against, arguments.ruleset)
    emit(arguments.json, verdict._asdict(), *_verdict_lines(verdict))
    return 0 if verdict.verdict == "pass" else 1


def _verdict_lines(verdict: "ReferenceVerdict") -> list[str]:
    lines = [f"{verdict.verdict}: {verdict.message}"]
    if verdict.mean is not None:
        lines.append(
            f"MLPerf's mean of {verdict.runs} runs, without the fastest and the slowest: {verdict.mean:,.0f} samples"
        )
    if verdict.reference_mean is not None:
        between = f"{verdict.least_mean:,.0f} to {verdict.most_mean:,.0f}"
        lines.append(f"reference: {verdict.reference_mean:,.0f}; means from {between} pass")
    return lines


def add_package_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the runs to package, the submitter and the folder."""
    from bertbench.common.paths import home

    parser.add_argument(
        "systems", nargs="+", metavar="SYSTEM", help="systems to package, each with ten runs in the results folder"
    )
    add_path(parser, "--out", "DIR", "folder to write the package to, new or empty", required=True)
    parser.add_argument(
        "--submitter", required=True, metavar="ORG", help="name of the submitter in the system descriptions"
    )
    add_path(
        parser, "--results", "FOLDER", "folder with <system>/bert/result_<n>.txt (default: results/)",
        default=home() / "results",
    )  # fmt: skip
    add_ruleset(parser, "rules to judge by")
    add_flag(parser, "--allow-dirty", "also package sources and runs with uncommitted changes")


def package(arguments: argparse.Namespace) -> int:
    """Build a submission package from results and sources, and print the judge's verdict."""
    from bertbench.results.package import build
    from compliance import package_text

    judgement = build(
        arguments.out,
        arguments.submitter,
        arguments.systems,
        arguments.results,
        arguments.ruleset,
        arguments.allow_dirty,
    )
    emit(arguments.json, judgement.as_json(), package_text(judgement))
    return 0
