"""Measure start-up in pieces, from the launch of a run to the end of its first step.

A piece lasts from one mark to the next. runs/log_spans.py has the names and the order of the pieces.
"""

import os
import time
from itertools import pairwise
from pathlib import Path

from bertbench.distributed.world import World

_IMPORTED = time.time()


class Startup:
    """One rank's marks, from `began` (seconds since 1970) or from now. Only the first mark of each name counts."""

    def __init__(self, began: float | None = None) -> None:
        self._ended = {"": time.time() if began is None else began}

    @classmethod
    def of_rank(cls, launched: float | None) -> "Startup":
        """Return the start-up of a process that exists for this run only, which begins with that of its launcher.

        `launched` is when that began, in seconds since 1970; None if it isn't known.
        """
        process = process_started()
        startup = cls(launched or process)
        startup._ended["launcher"] = max(process, startup._ended[""])  # Linux gives a process's start to 10 ms
        return startup

    def mark(self, piece: str) -> None:
        """End a piece now."""
        self._ended.setdefault(piece, time.time())

    def ended(self, piece: str) -> float | None:
        """Return when a piece ended, in seconds since 1970; None if it hasn't."""
        return self._ended.get(piece)

    def spans(self) -> list[tuple[str, float, float]]:
        """Return the finished pieces in order, each with its beginning and its end in seconds since 1970."""
        return [(piece, began, end) for (_, began), (piece, end) in pairwise(self._ended.items())]

    def seconds(self) -> dict[str, float]:
        """Return the seconds of each finished piece, in order."""
        return {piece: round(end - began, 6) for piece, began, end in self.spans()}

    def gathered(self, world: World) -> dict[str, dict[str, float]]:
        """Return rank 0's pieces, and the longest time of each over all ranks.

        All ranks must call it, off the clock.
        """
        everyone = world.from_all(self.seconds())
        leader = everyone[0]
        slowest = {}
        for piece in leader:
            slowest[piece] = max(seconds[piece] for seconds in everyone)
        return {"seconds": leader, "slowest": slowest}


def process_started() -> float:
    """Return when this process began, in seconds since 1970: on Linux to within 10 ms, else the time of this import.

    If a shell script became this process by exec, the script's time is included.
    """
    try:
        # field 22 of proc(5)'s stat, clock ticks since boot; it follows the name, which may hold blanks
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        return time.time() - (time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))
    except (OSError, AttributeError):
        return _IMPORTED
