"""Keep the finished trials of a study or bench in its folder, each with its result, commit, machine and time.

When a study resumes, it doesn't repeat them.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bertbench.common.atomic import LineFile, write_state
from bertbench.common.errors import ConfigError
from bertbench.common.section import Section
from bertbench.machine.provenance import provenance

Record = dict[str, Any]
"""A trial: its key, its result, `origin` (commit and machine) and `ended`."""


class Journal:
    """Holds the definition of a study, and trials.jsonl, which has a line of JSON for each trial."""

    def __init__(self, folder: Path, definition: Section) -> None:
        """Read what the folder contains. Raises ConfigError if it belongs to another study."""
        folder.mkdir(parents=True, exist_ok=True)
        note = folder / "definition.json"
        path = folder / "trials.jsonl"
        content = definition.model_dump(mode="json")
        if note.exists() and json.loads(note.read_text(encoding="utf-8")) != content:
            raise ConfigError(f"{folder}: belongs to another study (see {note.name}); give --out another folder")
        write_state(note, content)
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        self.records: list[Record] = [json.loads(line) for line in lines]
        """The trials, in the order in which they finished."""
        self._lines = LineFile(path)
        self._origin = provenance()  # read once, because code that changes later isn't the code that runs

    def trial(self, key: Mapping[str, Any], run: Callable[[], Mapping[str, Any]]) -> Record:
        """Return the record of a trial; if there is none, run the trial."""
        for record in self.records:
            if key.items() <= record.items():
                return record
        record = {**key, **run(), "origin": self._origin, "ended": datetime.now(UTC).isoformat(timespec="seconds")}
        self._lines.append(json.dumps(record) + "\n")
        self.records.append(record)
        return record

    @property
    def origins(self) -> list[dict[str, Any]]:
        """Return each commit and machine that ran trials, with the number of trials; old trials don't have them."""
        trials_by_origin = Counter(json.dumps(record.get("origin", {})) for record in self.records)
        return [{**json.loads(origin), "trials": trials} for origin, trials in trials_by_origin.items()]
