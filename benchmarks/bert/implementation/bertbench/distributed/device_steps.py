"""Track which steps a GPU has finished, without waiting for it: the host launches many steps ahead.

An event is recorded after each step's work. The watchdog's thread checks a few times a minute which have passed.
"""

import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol, Self

import torch


class Event(Protocol):
    """A mark in a device's queue."""

    def query(self) -> bool:
        """Return whether the device has passed the mark."""


class _Launched(NamedTuple):
    step: int
    end: Event


class DeviceSteps:
    """The steps of one device: the main thread launches them, another thread checks which are finished."""

    def __init__(self, record: Callable[[], Event]) -> None:
        """Take a function that records an event after the work launched so far."""
        self._record = record
        self._unfinished: deque[_Launched] = deque()
        self._since = time.monotonic()
        self.finished = 0
        """The last step that was finished when `look` was last called; 0 if none was."""

    @classmethod
    def on(cls, device: torch.device) -> Self:
        """Return the steps of a GPU, launched on the main thread's stream."""

        def record() -> Event:
            event: Event = torch.cuda.current_stream(device).record_event()
            return event

        return cls(record)

    def launched(self, step: int) -> None:
        """Record that all work of a step, counted from 1, is launched."""
        if not self._unfinished:
            self.finished = step - 1
            self._since = time.monotonic()  # first: `look` must not take the new step to be as old as the last one
        self._unfinished.append(_Launched(step, self._record()))

    def look(self) -> None:
        """Check which steps are finished. Raises RuntimeError after an error of the device, which the host gets too."""
        while self._unfinished and self._unfinished[0].end.query():
            self.finished = self._unfinished[0].step
            self._since = time.monotonic()
            self._unfinished.popleft()

    def waiting_s(self) -> float:
        """Return for how many seconds the device has had steps to compute, and finished none."""
        return time.monotonic() - self._since if self._unfinished else 0.0
