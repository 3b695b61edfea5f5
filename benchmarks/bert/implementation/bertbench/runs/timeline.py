"""Write a run's activities with their start times, for the ledger of its wall clock; format: runs/formats.py.

Rank 0 writes at most two records for each snapshot or evaluation. Its launcher, if it has one, records when attempts
begin and end.
"""

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bertbench.common.errors import RunError
from bertbench.distributed.startup import Startup
from bertbench.runs.formats import COMPILE, IDLE, QUEUED, START_UP, TRAINING
from bertbench.runs.linefile import LineFile


class Timeline(LineFile):
    """Writes one line for each record; without a file (rank > 0), it writes nothing.

    Raises RunError if the file can't be opened. A record that can't be written later is left out, because records only
    serve reports; the first such record causes a warning.
    """

    def __init__(self, path: Path | None) -> None:
        super().__init__(path)
        self._empty = path is not None and path.stat().st_size == 0
        self.waited_s = 0.0
        """Seconds for which rank 0 waited for samples during training."""
        self._warned = False

    def attempt(
        self, began: float | None = None, allocated: float | None = None, submitted: float | None = None
    ) -> None:
        """Record that ranks are started: from `began` on, in seconds since 1970, or from now on.

        The first run of a job began when the job was `allocated`; before, since `submitted`, it was queued.
        """
        if allocated is None:
            return self.begin(START_UP, at=began)
        if self._empty and submitted:
            self.begin(QUEUED, at=submitted)
        return self.begin(START_UP, at=allocated, was=QUEUED)

    def ready(self, startup: Startup) -> None:
        """Record which part of the start-up was warm-up, which includes compilation; training begins now."""
        model, warm_up = startup.ended("model"), startup.ended("warm-up")
        if model and warm_up:
            self.begin(COMPILE, at=model)
            self.begin(START_UP, at=warm_up)
        self.begin(TRAINING)

    @contextmanager
    def interrupted_by(self, doing: str, **more: Any) -> Iterator[None]:
        """Record that, within the context, the run does something other than training."""
        self.begin(doing, **more)
        yield
        self.begin(TRAINING)

    def ended(self, **more: Any) -> None:
        """Record that this attempt has ended and nothing is done from now on."""
        self.begin(IDLE, **more)

    def resumed(self, step: int, sign: float | None) -> None:
        """Record that the run resumes from the snapshot of `step`; `sign` is the previous attempt's last heartbeat."""
        self._record({"time": time.time(), "resumed": step, "sign": sign})

    def begin(self, doing: str, at: float | None = None, **more: Any) -> None:
        """Record what the run does from `at`, or from now on."""
        waited = {"waited_s": round(self.waited_s, 6)} if self.waited_s else {}
        self._record({"time": time.time() if at is None else at, "doing": doing, **waited, **more})

    def _record(self, record: dict[str, Any]) -> None:
        try:
            self.append(json.dumps(record) + "\n")
        except RunError as error:
            if not self._warned:
                print(f"warning: {error}; the run continues without it", file=sys.stderr, flush=True)
            self._warned = True
