"""Format the parts of a page: a Markdown table, a fenced block, and a link to a record."""

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[2] / "results"


def read(path: Path) -> Any:
    """Return the content of a JSON file."""
    return json.loads(path.read_text())


def fenced(*lines: str) -> str:
    """Return lines as a fenced block."""
    return "\n".join(["```", *lines, "```"])


def link(path: Path) -> str:
    """Return a link to a record, relative to results/."""
    return f"[{path.parent.name}{'/' + path.stem if path.suffix else ''}]({path.relative_to(RESULTS)})"


def table(heads: list[str], rows: list[list[str]]) -> str:
    """Return a table in Markdown."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [heads, ["---"] * len(heads), *rows])
