"""The finished runs of a study, a JSON line each: a resumed study repeats none of them."""

import json
from pathlib import Path
from typing import Any

from bertbench.results.linefile import LineFile


class Journal:
    """The file of a study's runs."""

    def __init__(self, path: Path) -> None:
        """Read what is there. Raises RunError if the file can't be written."""
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        self.records: list[dict[str, Any]] = [json.loads(line) for line in lines]
        """In the order in which the runs finished."""
        self._lines = LineFile(path)

    def add(self, record: dict[str, Any]) -> None:
        """Keep a finished run."""
        self._lines.append(json.dumps(record) + "\n")
        self.records.append(record)
