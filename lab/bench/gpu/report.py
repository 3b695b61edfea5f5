"""Keep the report of `gpu_check.sh`, gpu_check.json, which is rewritten after every result."""

import json
import os
import platform
from collections.abc import Sequence
from pathlib import Path

import torch

from bertbench.common.atomic import new_file
from bertbench.machine.provenance import commit
from lab.bench.gpu.parts import CheckPart
from lab.bench.gpu.testbed import Row

STATUSES = ("held", "failed", "not reached")
_NAME = "gpu_check.json"
_CUT_OFF = "the command ended while it ran"


class Report:
    """The results so far: those of this command's parts, and those that earlier commands left in the folder."""

    def __init__(self, folder: Path, chosen: Sequence[CheckPart]) -> None:
        self._chosen = chosen
        self.path = folder / _NAME
        self._output = ""  # output of the running part since its last row
        folder.mkdir(parents=True, exist_ok=True)
        earlier = json.loads(self.path.read_text())["parts"] if self.path.exists() else []
        self._parts: dict[str, Row] = {part["name"]: part for part in earlier}
        for part in chosen:
            self._parts[part.name] = {"name": part.name, "shows": part.shows, "rows": []}
            self.end(part, "not reached")

    def begin(self, part: CheckPart) -> None:
        """Count a part as failed until it has ended, so that the report is right even if the check is killed."""
        self._output = ""
        self.end(part, "failed", _CUT_OFF)

    def take(self, part: CheckPart, line: str) -> None:
        """Take a line of a part's output: a row, or a piece of a JSON text that is the part's only output."""
        self._output += line
        try:
            content = json.loads(line if line.startswith("{") else self._output)
        except json.JSONDecodeError:
            return
        self._output = ""
        is_row = isinstance(content, dict) and content.keys() & {"holds", "not_reached"}
        self.rows(part).append(content if is_row else {"found": content, "holds": True})
        self._write()

    def end(self, part: CheckPart, status: str, reason: str = "", seconds: float = 0.0) -> str:
        """Record how a part ended (one of STATUSES), with the reason if it didn't hold; return both as text."""
        self._parts[part.name].update(status=status, reason=reason, seconds=seconds)
        self._write()
        return f"{status} {reason}".rstrip()

    def rows(self, part: CheckPart) -> list[Row]:
        """Return a part's rows so far."""
        rows: list[Row] = self._parts[part.name]["rows"]
        return rows

    def broken(self, part: CheckPart) -> str:
        """Return which rows don't hold: the first value of each, which is its name, and its error."""
        broken = [row for row in self.rows(part) if not row.get("holds", True)]
        return "; ".join(": ".join([str(next(iter(row.values()))), row.get("error", "doesn't hold")]) for row in broken)

    @property
    def failed(self) -> bool:
        """Return whether one of this command's parts failed."""
        return bool(self._by_status()["failed"])

    def summary(self) -> str:
        """Return a line that says which of this command's parts held, failed, and were not reached."""
        return "; ".join(f"{status}: {', '.join(names) or 'none'}" for status, names in self._by_status().items())

    def _by_status(self) -> dict[str, list[str]]:
        names: dict[str, list[str]] = {status: [] for status in STATUSES}
        for part in self._chosen:
            status = self._parts[part.name]["status"]
            if status in names:
                names[status].append(part.name)
        return names

    def text(self) -> str:
        """Return the report as JSON."""
        return json.dumps(self._content(), indent=2)

    def _content(self) -> Row:
        parts = list(self._parts.values())
        machine = {
            "gpus": [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())],
            "torch": torch.__version__, "cuda": torch.version.cuda,
            "python": platform.python_version(), "cores": os.cpu_count(), "commit": commit(),
        }  # fmt: skip
        return {"machine": machine, "passed": all(part["status"] != "failed" for part in parts), "parts": parts}

    def _write(self) -> None:
        with new_file(self.path) as unfinished:
            unfinished.write_text(f"{self.text()}\n")
