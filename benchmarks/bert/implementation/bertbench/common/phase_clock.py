"""Wall time of one rank by phase, in marks that cost about a microsecond each."""

import time
from collections.abc import Callable

import torch

from bertbench.common.phases import PHASES

Mark = float | torch.cuda.Event


class PhaseClock:
    """Adds up the time of each phase; on a GPU in events of its stream, which only `total_ms` waits for."""

    def __init__(self, device: torch.device) -> None:
        self._mark: Callable[[], Mark] = _event if device.type == "cuda" else time.perf_counter
        self._phase: str | None = None
        self._total_ms = dict.fromkeys(PHASES, 0.0)
        self._ended: list[tuple[str | None, Mark]] = []
        """Phases in order, each with the mark at its end."""

    def enter(self, phase: str | None) -> str | None:
        """Begin a phase, None for time that doesn't count; return the one that ends."""
        ended, self._phase = self._phase, phase
        self._ended.append((ended, self._mark()))
        return ended

    def discard(self) -> None:
        """Leave out the time since the last look."""
        del self._ended[:-1]

    def total_ms(self) -> list[float]:
        """Return the milliseconds of each of PHASES so far, to the end of the phase before this one."""
        for (_, begun), (phase, ended) in zip(self._ended, self._ended[1:], strict=False):
            if phase is not None:
                self._total_ms[phase] += _milliseconds(begun, ended)
        self.discard()
        return list(self._total_ms.values())


def _event() -> torch.cuda.Event:
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def _milliseconds(begun: Mark, ended: Mark) -> float:
    if isinstance(begun, float):
        assert isinstance(ended, float), "marks of one clock are of one kind"
        return 1e3 * (ended - begun)
    assert isinstance(ended, torch.cuda.Event), "marks of one clock are of one kind"
    begun.synchronize()
    ended.synchronize()
    return begun.elapsed_time(ended)
