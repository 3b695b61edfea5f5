"""What the time of a step on one rank goes to.

A collective levels the ranks: after it, all have spent as long. So what a rank waits in collectives is a phase of its
own, and the others hold only what it did itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # reports read the names and no clock
    import torch

    Mark = float | torch.cuda.Event


DATA, FORWARD, BACKWARD, OPTIMIZER, WAIT = "data", "forward", "backward", "optimizer", "wait"
OWN = (DATA, FORWARD, BACKWARD, OPTIMIZER)
"""Phases in which a rank doesn't wait for other ranks."""
RANKS_MS = "ranks_ms"
"""Field of metrics.jsonl: mean milliseconds a step by phase and rank, since the previous line with the field."""
PHASES = (*OWN, WAIT)


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
    import torch  # noqa: PLC0415 - see above

    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def _milliseconds(begun: Mark, ended: Mark) -> float:
    if isinstance(begun, float):
        assert isinstance(ended, float), "marks of one clock are of one kind"
        return 1e3 * (ended - begun)
    assert not isinstance(ended, float), "marks of one clock are of one kind"
    begun.synchronize()
    ended.synchronize()
    return begun.elapsed_time(ended)
