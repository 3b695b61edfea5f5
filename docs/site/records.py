"""Read the records in results/, and link to them."""

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[2] / "results"


def read(path: Path) -> Any:
    """Return the content of a JSON file."""
    return json.loads(path.read_text())


def link(path: Path) -> str:
    """Return a link to a record, relative to results/."""
    return f"[{path.parent.name}{'/' + path.stem if path.suffix else ''}]({path.relative_to(RESULTS)})"
