"""When to stop restarting a run: it has died several times without progress, each time by the same fault of its own.

A signal from outside says nothing about the run: any number of them may fall after the same step.
"""

import re
import signal
from collections import Counter

ENOUGH = 3
"""Deaths by one fault without a step gained after which another restart would only die again."""
# Signals by which the kernel or the C library ends a program for what it did; whatever else ends one came from outside.
_OWN_FAULTS = {signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV, signal.SIGSYS}


class Deaths:
    """Those of one run since it last recorded a step that it had never reached before."""

    def __init__(self) -> None:
        self._furthest = 0
        self._faults: Counter[str] = Counter()

    def hopeless(self, fault: str | None, last_step: int) -> bool:
        """Count a death by `fault` (None: by a signal from outside) after recorded step `last_step`; is it enough?"""
        if last_step > self._furthest:
            self._furthest = last_step
            self._faults.clear()
        if fault is None:
            return False
        kind = re.sub(r"\d+", "#", fault)  # whichever rank finds it first, however long it waited
        self._faults[kind] += 1
        return self._faults[kind] >= ENOUGH


def from_outside(number: signal.Signals, out_of_memory: bool) -> bool:
    """Whether a signal that ended a rank was sent by someone else than the run itself."""
    return number not in _OWN_FAULTS and not (number == signal.SIGKILL and out_of_memory)
