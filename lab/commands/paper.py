"""`bertbench lab paper`: check the claims of arXiv 2402.02447, each by a command of this project."""

import argparse

from bertbench.commands import aligned, emit, write_file
from bertbench.common.paths import runs_folder
from bertbench.common.progress import Progress
from bertbench.machine.processor import processor
from bertbench.machine.provenance import provenance
from lab.commands.study import add_folder_arguments, check_optuna
from lab.study.paper import PARTS, ablation, run_parts, verdicts
from lab.study.paper_page import ABLATION_HEAD, ablation_rows, page_of, question_rows, table_rows
from lab.study.paper_questions import questions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the folder of answers."""
    add_folder_arguments(parser, "study_paper", defined=False)


def run(arguments: argparse.Namespace) -> int:
    """Run the missing parts, write the page, and print claims and verdicts."""
    check_optuna()
    folder = arguments.out or runs_folder() / "study_paper"
    with Progress() as progress:
        answers = run_parts(folder, PARTS, progress)
    write_file(folder / "study.html", page_of(answers, f"one core of {processor()}"), "--out")
    found = verdicts(answers)
    content = {
        "origin": provenance(),
        "claims": [verdict._asdict() for verdict in found],
        "ablation": [dict(zip(("name", "seconds", "samples", "share"), row, strict=True)) for row in ablation(answers)],
        "questions": [answer._asdict() for answer in questions(answers)],
        "commands": {part.name: part.command for part in PARTS},
    }
    lines = (*table_rows(found), *question_rows(answers))
    text = "\n\n".join((aligned(ABLATION_HEAD, ablation_rows(answers)), *map("\n  ".join, lines)))
    emit(arguments.json, content, text)
    return 0
