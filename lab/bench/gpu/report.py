"""Keep the report of `gpu_check.sh`: gpu_check.json and gpu_check.html, written again after every result."""

import json
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from bertbench.common.atomic import new_file
from lab.bench.gpu.parts import Part
from lab.bench.gpu.stand import Row
from lab.record_page import record_page

STATUSES = ("held", "failed", "not reached")
_CUT_OFF = "the command ended while it ran"


class Outcome(NamedTuple):
    """How a part ended."""

    status: str
    """One of STATUSES."""
    seconds: float = 0.0
    reason: str = ""
    """The reason if it did not hold."""


class Report:
    """The results so far, of this command's parts and of those that earlier commands left in the folder."""

    def __init__(self, folder: Path, chosen: Sequence[Part]) -> None:
        self._folder, self._chosen = folder, chosen
        self._output: dict[str, str] = {}
        folder.mkdir(parents=True, exist_ok=True)
        self._parts: dict[str, dict[str, Any]] = {part["name"]: part for part in _earlier(folder)}
        for part in chosen:
            self._parts[part.name] = {"name": part.name, "shows": part.shows, "rows": []}
            self._set(part, Outcome("not reached"))
        self._write()

    def begin(self, part: Part) -> None:
        """Count a part as failed until it has ended, so that a kill leaves the truth."""
        self._set(part, Outcome("failed", reason=_CUT_OFF))
        self._write()

    def take(self, part: Part, line: str) -> None:
        """Take a line of a part's output: a row, or a piece of one JSON text that is its only one."""
        text = self._output.get(part.name, "") + line
        try:
            found = json.loads(line if line.startswith("{") else text)
        except json.JSONDecodeError:
            self._output[part.name] = text
            return
        is_row = isinstance(found, dict) and found.keys() & {"holds", "not_reached"}
        self.rows(part).append(found if is_row else {"found": found, "holds": True})
        self._write()

    def end(self, part: Part, outcome: Outcome) -> Outcome:
        """Note how a part ended."""
        self._set(part, outcome)
        self._write()
        return outcome

    def rows(self, part: Part) -> list[Row]:
        """Return a part's rows so far."""
        rows: list[Row] = self._parts[part.name]["rows"]
        return rows

    def broken(self, part: Part) -> str:
        """Return which rows don't hold: their first value, which names them, and their error."""
        broken = [row for row in self.rows(part) if not row.get("holds", True)]
        return "; ".join(": ".join([str(next(iter(row.values()))), row.get("error", "doesn't hold")]) for row in broken)

    @property
    def failed(self) -> bool:
        """Whether one of this command's parts failed."""
        return any(self._parts[part.name]["status"] == "failed" for part in self._chosen)

    def summary(self) -> str:
        """Return, in a line, which of this command's parts held, failed and were not reached."""
        by_status = {
            status: [part.name for part in self._chosen if self._parts[part.name]["status"] == status]
            for status in STATUSES
        }
        return "; ".join(f"{status}: {', '.join(names) or 'none'}" for status, names in by_status.items())

    def text(self) -> str:
        """Return the report as JSON."""
        return json.dumps(self._content(), indent=2)

    def _content(self) -> dict[str, Any]:
        parts = list(self._parts.values())
        passed = all(part["status"] != "failed" for part in parts)
        return {"machine": machine(), "passed": passed, "parts": parts}

    def _set(self, part: Part, outcome: Outcome) -> None:
        self._parts[part.name].update(outcome._asdict())

    def _write(self) -> None:
        shown = record_page("What a GPU shows of bertbench", self._content())
        for name, text in (("gpu_check.json", f"{self.text()}\n"), ("gpu_check.html", shown)):
            with new_file(self._folder / name) as unfinished:
                unfinished.write_text(text)


def _earlier(folder: Path) -> list[dict[str, Any]]:
    try:
        parts: list[dict[str, Any]] = json.loads((folder / "gpu_check.json").read_text())["parts"]
    except (OSError, ValueError, LookupError):
        return []
    return parts


def machine() -> dict[str, Any]:
    """Return the machine that the check runs on."""
    return {
        "gpus": [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())],
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        "cores": os.cpu_count(),
    }
