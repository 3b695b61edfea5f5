"""Record when each pass and each message of a pipeline's stages began and ended, in a few steps.

On a GPU the marks are events of its stream, which only `StageRecorder.times` waits for.
"""

from time import perf_counter
from typing import Any, Literal, NamedTuple

import torch

Kind = Literal["forward", "backward", "receive forward", "receive backward", "send forward", "send backward", "wait"]


class StageTime(NamedTuple):
    """What a stage did with a microbatch, from `began` to `ended` in seconds of this machine's clock.

    A receive begins when the rank asks for the message, and ends when the pass that needs it begins. A send takes no
    time on the rank that sends: the message is on its way until the other rank's receive ends.
    """

    kind: Kind
    step: int
    stage: int
    microbatch: int
    began: float
    ended: float


class StageRecorder:
    """Records what a rank's stages do while `on` is true."""

    def __init__(self, device: torch.device) -> None:
        self.on = False
        self.step = 0
        self._on_gpu = device.type == "cuda"
        self._times: list[tuple[Kind, int, int, int, Any, Any]] = []
        self._asked: dict[tuple[Kind, int, int], Any] = {}
        self._anchor: tuple[Any, float] | None = None

    def mark(self) -> Any:
        """Return the current time: in seconds, or on a GPU as an event of its stream."""
        if not self._on_gpu:
            return perf_counter()
        if self._anchor is None:  # once, before the first recorded pass
            torch.cuda.synchronize()
            self._anchor = (_recorded_event(), perf_counter())
        return _recorded_event()

    def asks(self, kind: Kind, stage: int, microbatch: int) -> None:
        """Note that this rank asks for a message."""
        self._asked[kind, stage, microbatch] = self.mark()

    def add(self, kind: Kind, stage: int, microbatch: int, began: Any, ended: Any) -> None:
        """Add a pass or a message between two marks."""
        self._times.append((kind, self.step, stage, microbatch, began, ended))

    def received(self, kind: Kind, stage: int, microbatch: int, ended: Any) -> None:
        """Add a message that is used from `ended` on; the first and the last stage have none."""
        asked = self._asked.pop((kind, stage, microbatch), None)
        if asked is not None:
            self.add(kind, stage, microbatch, asked, ended)

    def times(self) -> list[StageTime]:
        """Return what was recorded, in order; on a GPU, wait for the recorded events first."""
        times = []
        for kind, step, stage, microbatch, began, ended in self._times:
            times.append(StageTime(kind, step, stage, microbatch, self._seconds(began), self._seconds(ended)))
        return times

    def _seconds(self, mark: Any) -> float:
        if self._anchor is None:
            return float(mark)
        event, host_s = self._anchor
        mark.synchronize()
        return float(host_s + event.elapsed_time(mark) / 1e3)


def _recorded_event() -> torch.cuda.Event:
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event
