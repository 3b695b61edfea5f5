"""Write a run's trace.json: what the run does, its start-up, and the phases of its steps (trace_format.py).

Rank 0 writes at most four lines for each snapshot or evaluation, and there one for each rank and phase. Its launcher,
if it has one, records when attempts begin and end.
"""

import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bertbench.common.atomic import LineFile
from bertbench.common.errors import RunError
from bertbench.config.layout import Layout
from bertbench.distributed.startup import Startup
from bertbench.runs.trace_format import (
    COMPILE,
    IDLE,
    QUEUED,
    RESUMED,
    RUN,
    RUN_TRACK,
    START_UP,
    STARTUP_TRACK,
    STEPS,
    TRAINING,
    Event,
    process_name,
    span,
    track_name,
)


class Trace(LineFile):
    """Appends events, each a line; without a file (rank > 0), it writes nothing.

    Raises RunError if the file can't be opened. An event that can't be written later is left out, because a trace only
    serves reports; the first such event causes a warning.
    """

    def __init__(self, path: Path | None) -> None:
        super().__init__(path)
        self._empty = path is not None and path.stat().st_size == 0
        self.waited_s = 0.0
        """Seconds for which rank 0 waited for samples during training."""
        self._warned = False
        self._named_ranks = 0

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
        at_us = round(1e6 * time.time(), 1)
        of_run = {"pid": RUN, "tid": RUN_TRACK, "ts": at_us}
        self.add([{"ph": "i", "name": RESUMED, **of_run, "s": "p", "args": {"step": step, "sign": sign}}])

    def begin(self, doing: str, at: float | None = None, **more: Any) -> None:
        """Record what the run does from `at`, in seconds since 1970, or from now on."""
        waited = {"waited_s": round(self.waited_s, 6)} if self.waited_s else {}
        of_run = {"pid": RUN, "tid": RUN_TRACK, "ts": round(1e6 * (time.time() if at is None else at), 1)}
        begun = {"ph": "B", "name": doing, **of_run, "args": {**waited, **more}}
        self.add([begun] if self._empty else [{"ph": "E", **of_run}, begun])

    def start_up(self, startup: Startup) -> None:
        """Record the parts of rank 0's start-up."""
        spans = [span(RUN, STARTUP_TRACK, part, began, ended - began) for part, began, ended in startup.spans()]
        self.add([track_name(RUN, STARTUP_TRACK, "start-up of rank 0"), *spans])

    def phases(self, step: int, steps: int, ms_by_phase: Mapping[str, Sequence[float]], layout: Layout | None) -> None:
        """Record the mean milliseconds of each phase, by rank, over the `steps` up to `step`.

        Each rank's phases follow each other and end now. `layout` is that of a pipeline, whose stages are named.
        """
        if self._path is None:
            return
        ranks = len(next(iter(ms_by_phase.values())))
        if self._named_ranks != ranks:
            self._named_ranks = ranks
            self.add([process_name(STEPS, "phases of a step"), *(_named_rank(rank, layout) for rank in range(ranks))])
        ms_by_rank = [*zip(*ms_by_phase.values(), strict=True)]
        began_us = 1e6 * time.time() - 1e3 * max(map(sum, ms_by_rank))
        details = json.dumps({"step": step, "steps": steps})
        lines = []
        for rank, ms_of_phases in enumerate(ms_by_rank):
            phase_began_us = began_us
            for phase, phase_ms in zip(ms_by_phase, ms_of_phases, strict=True):
                if phase_ms:  # written by hand: the clock runs, and 1,024 ranks have 7,000 of these lines
                    place = f'"name":"{phase}","pid":{STEPS},"tid":{rank}'
                    times = f'"ts":{phase_began_us:.1f},"dur":{1e3 * phase_ms:.1f}'
                    lines.append(f'{{"ph":"X",{place},{times},"args":{details}}},\n')
                phase_began_us += 1e3 * phase_ms
        self._append_lines(lines)

    def add(self, events: Iterable[Event]) -> None:
        """Append events."""
        self._append_lines([_line(event) for event in events])

    def _append_lines(self, lines: list[str]) -> None:
        if self._empty:
            lines = ["[\n", _line(process_name(RUN, "run")), *lines]
        try:
            self.append("".join(lines))
            self._empty = False
        except RunError as error:
            if not self._warned:
                print(f"warning: {error}; the run continues without it", file=sys.stderr, flush=True)
            self._warned = True


def _line(event: Event) -> str:
    return json.dumps(event, separators=(",", ":")) + ",\n"


def _named_rank(rank: int, layout: Layout | None) -> Event:
    if layout is None:
        return track_name(STEPS, rank, f"rank {rank}")
    stage = layout.coordinate(rank).pipeline
    return track_name(STEPS, rank, f"rank {rank}, stage {stage}", stage=stage)
