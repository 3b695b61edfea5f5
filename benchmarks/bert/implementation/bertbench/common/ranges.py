"""Name the phases of a step for `train --profile` and a PhaseClock. Imports only torch: model/ and optim/ use it."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch.profiler import record_function

from bertbench.common import phases
from bertbench.common.phases import PhaseClock

ATTENTION, FORWARD, BACKWARD, ALL_REDUCE = "attention", "forward", "backward", "all-reduce"
OPTIMIZER, DATA_WAIT = "optimizer", "data wait"
_PHASE_OF = {
    DATA_WAIT: phases.DATA, FORWARD: phases.FORWARD, BACKWARD: phases.BACKWARD, OPTIMIZER: phases.OPTIMIZER,
    ALL_REDUCE: phases.WAIT,
}  # fmt: skip
_clock: PhaseClock | None = None


def named(name: str) -> AbstractContextManager[object]:
    """Return a range of the profiler, and of a clock; without them it costs a twentieth of record_function."""
    profiled = record_function(name) if torch.autograd.profiler._is_profiler_enabled else nullcontext()
    if name not in _PHASE_OF or _clock is None:
        return profiled
    return _Timed(_clock, _PHASE_OF[name], profiled)


@contextmanager
def clocked(clock: PhaseClock) -> Iterator[None]:
    """Let `clock` see the ranges of the body."""
    global _clock  # noqa: PLW0603 - like the profiler's: code that names a range knows neither
    before, _clock = _clock, clock
    try:
        yield
    finally:
        _clock = before


class _Timed:
    """A range that a clock sees."""

    __slots__ = ("_before", "_clock", "_phase", "_profiled")

    def __init__(self, clock: PhaseClock, phase: str, profiled: AbstractContextManager[object]) -> None:
        self._clock, self._phase, self._profiled = clock, phase, profiled

    def __enter__(self) -> None:
        self._before = self._clock.enter(self._phase)
        self._profiled.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._profiled.__exit__(*error)
        self._clock.enter(self._before)
