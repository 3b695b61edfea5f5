"""Decide when to stop restarting: a run has died several times by the same fault of its own, without progress.

Signals from outside don't count, however many arrive after the same step.
"""

import re
import signal
from collections import Counter

ENOUGH = 3
"""Deaths by one fault, without a new step, after which another restart is hopeless."""
# Signals by which the kernel or the C library ends a faulty program; all others come from outside.
_OWN_FAULTS = {signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV, signal.SIGSYS}


class Deaths:
    """The deaths of one run since it last recorded a new step."""

    def __init__(self) -> None:
        self._furthest = 0
        self._faults: Counter[str] = Counter()

    def hopeless(self, fault: str | None, last_step: int) -> bool:
        """Count a death by `fault` (None: a signal from outside) after `last_step`; return whether to give up."""
        if last_step > self._furthest:
            self._furthest = last_step
            self._faults.clear()
        if fault is None:
            return False
        kind = re.sub(r"\d+", "#", fault)  # the same fault for any rank and any waiting time
        self._faults[kind] += 1
        return self._faults[kind] >= ENOUGH


def from_outside(number: signal.Signals, out_of_memory: bool) -> bool:
    """Return whether a signal that ended a rank came from outside the run."""
    return number not in _OWN_FAULTS and not (number == signal.SIGKILL and out_of_memory)
