"""Follow the files of a run as they grow. The whole log is read each time, because it is short; metrics.jsonl isn't.

A resumed run truncates both files to its snapshot; the later steps are then forgotten here, too.
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

_RECENT = 50  # the last steps, whose ranks are compared
Row = dict[str, float]


class FollowedRun:
    """A run's log and metrics, as they were at the last `read`."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self.folder = log.with_suffix("")
        self.facts = RunFacts([])
        self.rows: dict[int, Row] = {}
        """The numbers in metrics.jsonl, by step and in order."""
        self.rank_times: deque[RankTimes] = deque(maxlen=_RECENT)
        """The ranks' times in the last lines of metrics.jsonl."""
        self._offset = 0
        """The place in metrics.jsonl where reading continues."""
        self._log_version = (-1, -1)
        """The size and modification time of the log when it was last read."""
        self.read()

    @property
    def system(self) -> str:
        """Return the system's name."""
        return system_name(self.log, self.facts)

    @property
    def batch(self) -> int | None:
        """Return the global batch; None until the log contains it."""
        return as_integer(self.facts.global_batch_size)

    @property
    def name(self) -> str:
        """Return a name that distinguishes the run: system, folder and number, such as cpu_demo/bert/result_0."""
        return f"{self.system}/{self.log.parent.name}/{self.log.stem}"

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of the run: the system file's settings, and seed, commit, processor and versions."""
        origin = {f"run.{key}": value for key, value in flattened(read_json(self.log, "run.json")).items()}
        return configured(self.log) | origin

    def read(self, at_most: int = -1) -> list[int]:
        """Read what was added, but at most `at_most` bytes of metrics; return the new steps. Skip unreadable lines.

        The log is read last, so that the evaluation before a known step is known, too.
        """
        new_steps = []
        for line in self._lines(at_most):
            step = self._add(json_object(line))
            if step is not None:
                new_steps.append(step)
        self._read_log()
        return [step for step in new_steps if step in self.rows]

    def _add(self, content: dict[str, Any]) -> int | None:
        """Add a line of metrics.jsonl; return its step, or None if it has no step."""
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
        """Forget this step and later ones, because the run has returned to a snapshot."""
        while self.rows and next(reversed(self.rows)) >= step:
            self.rows.popitem()

    def _read_log(self) -> None:
        with suppress(OSError, CannotJudge):  # the log has no complete line yet
            stat = self.log.stat()
            version = (stat.st_size, stat.st_mtime_ns)
            if version != self._log_version:
                self.facts = RunFacts(read_events(self.log))
                self._log_version = version

    def _lines(self, at_most: int) -> list[bytes]:
        """Return the complete lines of metrics.jsonl since the last call, or all lines if the file was truncated.

        Reading stops after the line that reaches `at_most` bytes; the next call reads the rest.
        """
        try:
            with (self.folder / "metrics.jsonl").open("rb") as file:
                if file.seek(0, os.SEEK_END) < self._offset:
                    self._offset = 0
                    self.rows.clear()
                    self.rank_times.clear()
                file.seek(self._offset)
                content = b"".join(file.readlines(at_most))
        except OSError:  # the file doesn't exist yet, or its file system is temporarily away
            return []
        complete_lines = content[: content.rfind(b"\n") + 1]
        self._offset += len(complete_lines)
        return complete_lines.splitlines()
