"""`bertbench lab paper`: check the claims of arXiv 2402.02447, each by a command of this project."""

import argparse

from bertbench.commands import emit, write_file
from bertbench.common.progress import Progress
from bertbench.machine.provenance import provenance
from lab.bench.harness import table
from lab.commands.study import add_folder_arguments, check_optuna, study_folder
from lab.record_page import record_page
from lab.study.paper import PARTS, SOURCES, run_parts
from lab.study.paper_claims import ablation, verdicts
from lab.study.paper_questions import questions

_ABLATION = {
    "1,024 A100s, batch 16,384": "{0[idea]}", "seconds": "{0[seconds]:.1f}", "samples": "{0[samples]:,.0f}",
    "of all ideas' time": "{0[share]:.2f}",
}  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the folder of answers."""
    add_folder_arguments(parser, "paper")


def run(arguments: argparse.Namespace) -> int:
    """Run the missing parts, write the page, and print claims and verdicts."""
    check_optuna()
    folder = study_folder(arguments, "paper")
    with Progress() as progress:
        answers = run_parts(folder, PARTS, progress)
    claims = [verdict._asdict() for verdict in verdicts(answers)]
    answered = [answer._asdict() for answer in questions(answers)]
    ideas = ablation(answers)
    content = {
        "sources": SOURCES,
        "claims": claims,
        "ablation": ideas,
        "questions": answered,
        "commands": {part.name: part.command for part in PARTS},
        "origin": provenance(),
    }
    write_file(folder / "study.html", record_page("The paper, answered", content), "--out")
    rows = [[*map(str, row.values())][:-1] for row in (*claims, *answered)]
    lines = (SOURCES, "\n".join(table(ideas, _ABLATION)), *map("\n  ".join, rows))
    emit(arguments.json, content, "\n\n".join(lines))
    return 0
