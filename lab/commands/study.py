"""Define what commands of studies have in common: arguments, the record and what they print."""

import argparse
import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bertbench.commands import aligned, emit, write_file
from bertbench.common.errors import ConfigError
from lab.study.engine import Study
from lab.study.intervals import Comparison, Row
from lab.study.page import PAIR_HEAD, arm_head, arm_rows, page_of, pair_rows


def add_folder_arguments(parser: argparse.ArgumentParser, folder: str, defined: bool = True) -> None:
    """Add what a study reads, and the folder that it writes."""
    if defined:
        parser.add_argument(
            "--definition",
            type=Path,
            metavar="FILE",
            help="another study of this form (default: the project's own)",
        )
    parser.add_argument(
        "--out", type=Path, metavar="DIR",
        help=f"folder of its runs, journal and page; a stopped study resumes there (default: runs/{folder})",
    )  # fmt: skip


def check_optuna() -> None:
    """Raise ConfigError if Optuna, an optional extra, is not installed."""
    if importlib.util.find_spec("optuna") is None:
        raise ConfigError("studies tune with Optuna, which is not installed; pip install 'bertbench[study]'")


def record_of(study: Study, rows: Sequence[Row], comparisons: Sequence[Any]) -> dict[str, Any]:
    """Return the record of a study; `origin` is what ran its last trial, `origins` all."""
    origins = study.journal.origins
    return {
        "definition": study.definition.model_dump(mode="json"),
        "origin": origins[-1],
        "origins": origins,
        "comparisons": comparisons,
        "rows": rows,
    }


def report(
    arguments: argparse.Namespace,
    title: str,
    lines: Sequence[str],
    study: Study,
    rows: Sequence[Row],
    *sections: str,
    content: object = None,
    tables: Mapping[str, Sequence[Comparison]] | None = None,
) -> None:
    """Write the page and print tables, or the record with --json; `content` replaces it, `tables` the comparisons."""
    found = study.comparisons(rows)
    write_file(study.folder / "study.html", page_of(title, lines, study, rows, found, *sections), "--out")
    texts = [aligned(arm_head(study), arm_rows(study, rows))]
    for heading, pairs in (tables or {"": found}).items():
        texts.append(f"{heading}\n{aligned(PAIR_HEAD, pair_rows(pairs))}".lstrip())
    emit(arguments.json, content or record_of(study, rows, found), "\n\n".join(texts))
