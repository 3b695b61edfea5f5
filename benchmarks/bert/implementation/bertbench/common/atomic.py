"""State files of work that may be stopped: whole or not there, never half-written."""

import json
from pathlib import Path


def write_state(path: Path, content: object) -> None:
    """Write `content` as JSON to a temporary name and rename it to `path`."""
    partial = path.with_suffix(".partial")
    partial.unlink(missing_ok=True)  # what a kill left; and "x" below never writes through a link or into a FIFO
    with partial.open("x") as stream:
        json.dump(content, stream)
    partial.replace(path)
