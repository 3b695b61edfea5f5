"""Follow the files of a run as they grow: the log is read whole each time, since it is short; metrics.jsonl at its end.

A resumed run truncates both files to its snapshot: later steps are then forgotten here too.
"""

import os
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any

from bertbench.run_files.json_files import json_object, read_json
from bertbench.run_files.run_settings import configured, flattened, system_name
from bertbench.run_files.straggler import RankTimes, rank_times
from compliance.read.log import CannotJudge, read_events
from compliance.read.run import RunFacts, as_integer, number

_RECENT = 50  # steps whose ranks are compared
Row = dict[str, float]


class FollowedRun:
    """A run's log and metrics, as far as they were written at the last `read`."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self.folder = log.with_suffix("")
        self.facts = RunFacts([])
        self.rows: dict[int, Row] = {}
        """The numbers in metrics.jsonl by step, in order."""
        self.rank_times: deque[RankTimes] = deque(maxlen=_RECENT)
        """The ranks' times in the last lines of metrics.jsonl."""
        self._offset = 0
        """The place in metrics.jsonl where reading continues."""
        self._log_version = (-1, -1)
        """Size and time of modification of the log that was read last."""
        self.read()

    @property
    def system(self) -> str:
        """Return the system's name."""
        return system_name(self.log, self.facts)

    @property
    def batch(self) -> int | None:
        """Return the global batch; None until the log has it."""
        return as_integer(self.facts.global_batch_size)

    @property
    def name(self) -> str:
        """Return the run's name among others: system, folder and number, such as cpu_demo/bert/result_0."""
        return f"{self.system}/{self.log.parent.name}/{self.log.stem}"

    def parameters(self) -> dict[str, Any]:
        """Return what the run ran with: the system file's settings, and seed, commit, processor and versions."""
        origin = {f"run.{key}": value for key, value in flattened(read_json(self.log, "run.json")).items()}
        return configured(self.log) | origin

    def read(self, at_most: int = -1) -> list[int]:
        """Read what was added, `at_most` bytes of metrics; return the new steps. Unreadable lines are passed over.

        The log is read last: the evaluation before a step that is known is then known too.
        """
        new_steps = []
        for line in self._lines(at_most):
            step = self._add(json_object(line))
            if step is not None:
                new_steps.append(step)
        self._read_log()
        return [step for step in new_steps if step in self.rows]

    def _add(self, content: dict[str, Any]) -> int | None:
        """Add a line of metrics.jsonl; return its step, None if it has none."""
        row = {}
        for name, value in content.items():
            if (numeric := number(value)) is not None:
                row[name] = numeric
        if "step" not in row:
            return None
        step = int(row["step"])
        self._forget_from(step)
        self.rows[step] = row
        if times := rank_times(content):
            self.rank_times.append(times)
        return step

    def _forget_from(self, step: int) -> None:
        """Forget this step and later ones: the run went back to a snapshot."""
        while self.rows and next(reversed(self.rows)) >= step:
            self.rows.popitem()

    def _read_log(self) -> None:
        with suppress(OSError, CannotJudge):  # it has no line yet, or half of one
            stat = self.log.stat()
            version = (stat.st_size, stat.st_mtime_ns)
            if version != self._log_version:
                self.facts = RunFacts(read_events(self.log))
                self._log_version = version

    def _lines(self, at_most: int) -> list[bytes]:
        """Return the whole lines of metrics.jsonl since the last call; all of them if the file was cut back.

        It stops after the line that reaches `at_most` bytes; the next call reads the rest.
        """
        try:
            with (self.folder / "metrics.jsonl").open("rb") as file:
                if file.seek(0, os.SEEK_END) < self._offset:
                    self._offset = 0
                    self.rows.clear()
                    self.rank_times.clear()
                file.seek(self._offset)
                content = b"".join(file.readlines(at_most))
        except OSError:  # not there yet, or a file system that comes back
            return []
        complete_lines = content[: content.rfind(b"\n") + 1]
        self._offset += len(complete_lines)
        return complete_lines.splitlines()
