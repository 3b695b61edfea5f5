"""Time the phases of a step, for `train --profile` and the trace. Imports only torch and `phases`."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import pairwise
from typing import Any

import torch
from torch.profiler import record_function

from bertbench.common.phases import PHASES


class PhaseClock:
    """Adds up the time of each phase. On a GPU, it records events in the stream; only `total_ms` waits for them."""

    def __init__(self, device: torch.device) -> None:
        on_gpu = device.type == "cuda"
        self._mark: Callable[[], Any] = _event if on_gpu else time.perf_counter
        self._ms_between: Callable[[Any, Any], float] = _ms_between_events if on_gpu else _ms_between
        self._phase: str | None = None
        self._total_ms = dict.fromkeys(PHASES, 0.0)
        self._ended: list[tuple[str | None, Any]] = []
        """The phases in order, each with the mark at its end."""

    def enter(self, phase: str | None) -> str | None:
        """Begin a phase, or with None a time that isn't counted, and return the phase that ends."""
        ending = self._phase
        self._ended.append((ending, self._mark()))
        self._phase = phase
        return ending

    def discard(self) -> None:
        """Don't count the phases that have ended since the last call of `total_ms`."""
        del self._ended[:-1]

    def total_ms(self) -> list[float]:
        """Return the milliseconds of each of PHASES so far, without the phase that hasn't ended yet."""
        for (_, begun), (phase, ended) in pairwise(self._ended):
            if phase is not None:
                self._total_ms[phase] += self._ms_between(begun, ended)
        self.discard()
        return list(self._total_ms.values())


_clock: PhaseClock | None = None


def in_phase(name: str) -> AbstractContextManager[object]:
    """Return a context that shows a phase to profiler and clock; without both, it costs 1/20 of record_function."""
    profiled = record_function(name) if torch.autograd.profiler._is_profiler_enabled else nullcontext()
    if name not in PHASES or _clock is None:
        return profiled
    return _timed(_clock, name, profiled)


@contextmanager
def clocked(clock: PhaseClock) -> Iterator[None]:
    """Let `clock` time the phases of the body."""
    global _clock  # noqa: PLW0603 - like the profiler: code that names a phase knows neither
    outer_clock = _clock
    _clock = clock
    try:
        yield
    finally:
        _clock = outer_clock


@contextmanager
def _timed(clock: PhaseClock, phase: str, profiled: AbstractContextManager[object]) -> Iterator[None]:
    outer_phase = clock.enter(phase)
    try:
        with profiled:
            yield
    finally:
        clock.enter(outer_phase)


def _event() -> torch.cuda.Event:
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def _ms_between(begun: float, ended: float) -> float:
    return 1e3 * (ended - begun)


def _ms_between_events(begun: torch.cuda.Event, ended: torch.cuda.Event) -> float:
    ended.synchronize()
    return begun.elapsed_time(ended)


def wait_for_device(device: torch.device) -> None:
    """Wait until the device has finished all queued work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
