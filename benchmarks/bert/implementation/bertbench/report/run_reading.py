"""Follow the files of a run as they grow: the log, whole at each look since it is short, and metrics.jsonl by its end.

A resumed run truncates both files to its snapshot: later steps are then forgotten here too.
"""

import os
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any

from bertbench.report.listing import system_name
from bertbench.run_files.reading import described, json_object
from bertbench.run_files.settings import configured, flattened
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
        """What metrics.jsonl has of each step, in order."""
        self.rank_times: deque[RankTimes] = deque(maxlen=_RECENT)
        """What its last lines say of the ranks."""
        self._offset = 0  # in metrics.jsonl
        self._seen = (-1, -1)
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
        origin = {f"run.{key}": value for key, value in flattened(described(self.log, "run.json")).items()}
        return configured(self.log) | origin

    def read(self, at_most: int = -1) -> list[int]:
        """Read what was added, `at_most` bytes of metrics; return the new steps. Unreadable lines are passed over.

        The log is read last: the evaluation before a step that is known is then known too.
        """
        fresh: list[int] = []
        for content in map(json_object, self._lines(at_most)):
            row = {name: value for name, one in content.items() if (value := number(one)) is not None}
            if "step" not in row:
                continue
            step = int(row["step"])
            for later in [known for known in reversed(self.rows) if known >= step]:  # it went back to a snapshot
                del self.rows[later]
            self.rows[step] = row
            if times := rank_times(content):
                self.rank_times.append(times)
            fresh.append(step)
        with suppress(OSError, CannotJudge):  # it has no line yet, or half of one
            stat = self.log.stat()
            if self._seen != (seen := (stat.st_size, stat.st_mtime_ns)):
                self.facts, self._seen = RunFacts(read_events(self.log)), seen
        return [step for step in fresh if step in self.rows]

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
        whole = content[: content.rfind(b"\n") + 1]
        self._offset += len(whole)
        return whole.splitlines()
