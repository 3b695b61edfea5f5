"""`bertbench lab paper`: check the claims of arXiv 2402.02447, each by a command of this project."""

import argparse

from bertbench.cli.arguments import emit
from bertbench.common.progress import Progress
from bertbench.common.tables import table_lines
from bertbench.machine.provenance import provenance
from lab.commands.study import add_folder_arguments, check_optuna, study_folder
from lab.study.paper import PARTS, SOURCES, published_rows, rows_of, run_parts


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the option for the folder of answers."""
    add_folder_arguments(parser, "paper")


def run(arguments: argparse.Namespace) -> int:
    """Run the missing parts, and print what they ask; with --json, print all answers."""
    check_optuna()
    folder = study_folder(arguments, "paper")
    with Progress() as progress:
        answers = run_parts(folder, PARTS, progress)
    asked = [part for part in PARTS if part.asks]
    content = {
        "sources": SOURCES,
        "published": published_rows(),
        "answers": [
            {
                "part": part.name,
                "asks": part.asks,
                "command": f"bertbench {part.command}",
                "rows": rows_of(answers[part.name]),
            }
            for part in asked
        ],
        "origin": provenance(),
    }
    lines = table_lines(asked, {"part": "{0.name}", "question": "{0.asks}", "command": "bertbench {0.command}"})
    emit(arguments, content, SOURCES, *lines, f"answers: {folder}/PART.json, or all of them with --json")
    return 0
