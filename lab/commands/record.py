"""Record a benchmark's numbers and table with command, machine, commit and day, for results/bench/."""

import argparse
import json
import shlex
import sys
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from bertbench.commands import emit, write_file
from bertbench.machine.provenance import provenance


def add_record(parser: argparse.ArgumentParser) -> None:
    """Add --record, for a benchmark whose numbers docs/ may show."""
    parser.add_argument(
        "--record", type=Path, metavar="FILE", help="also write numbers, table, machine and commit, for results/bench/"
    )


def emit_measured(
    arguments: argparse.Namespace, content: object, text: str, more: Mapping[str, object] | None = None
) -> None:
    """Print a measurement like `emit`; with --record also write it, together with `more`, which isn't printed.

    Raises ConfigError if the file cannot be written.
    """
    emit(arguments.json, content, text)
    if arguments.record is None:
        return
    record = {
        "command": shlex.join(["bertbench", *_without_record(sys.argv[1:])]),
        "measured": datetime.now(UTC).date().isoformat(),
        **provenance(),
        "printed": text.splitlines(),
        "results": content,
        **(more or {}),
    }
    write_file(arguments.record, json.dumps(record, indent=2, default=asdict) + "\n", "--record")


def _without_record(words: list[str]) -> list[str]:
    kept, skip = [], False
    for word in words:
        if not skip and word != "--record" and not word.startswith("--record=") and word != "--json":
            kept.append(word)
        skip = word == "--record"
    return kept
