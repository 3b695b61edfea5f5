"""Format the parts of a page: a Markdown table, a fenced block, a record's command, and a link to a record."""

import json
import re
from pathlib import Path
from typing import Any

from bertbench.cli import renamed

RESULTS = Path(__file__).parents[2] / "results"


def read(path: Path) -> Any:
    """Return the content of a JSON file."""
    return json.loads(path.read_text())


def command_of(record: dict[str, Any]) -> str:
    """Return a record's command, under its current name."""
    command = str(record["command"]).replace("bertbench bench ", "bertbench lab ")
    for old, new in renamed.COMMANDS.items():
        command = re.sub(rf"^bertbench {old}\b", f"bertbench {new}", command)
    return command


def fenced(*lines: str) -> str:
    """Return lines as a fenced block."""
    return "\n".join(["```", *lines, "```"])


def link(path: Path) -> str:
    """Return a link to a record, relative to results/."""
    return f"[{path.parent.name}{'/' + path.stem if path.suffix else ''}]({path.relative_to(RESULTS)})"


def table(heads: list[str], rows: list[list[str]]) -> str:
    """Return a table in Markdown."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [heads, ["---"] * len(heads), *rows])
