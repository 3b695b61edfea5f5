"""Start-up, measured: what passes between the launch of a run and the end of its first step, piece by piece.

A piece ends at a mark and began at the one before. Names and order of the pieces: compliance/startup.py.
"""

import json
import os
import time
from itertools import pairwise
from pathlib import Path

from bertbench.distributed.world import World

LAUNCHED = "BERTBENCH_LAUNCHED"
"""Variable in which a launcher says to its ranks when it began: seconds since 1970."""
_IMPORTED = time.time()


class Startup:
    """One rank's marks, from `began` in seconds since 1970 or from now; the first of a name counts."""

    def __init__(self, began: float | None = None) -> None:
        self._ended = {"": time.time() if began is None else began}

    @classmethod
    def of_rank(cls) -> "Startup":
        """The start-up of a process that does nothing but this run: it began when its launcher did."""
        process = process_started()
        startup = cls(float(os.environ.get(LAUNCHED, process)))
        startup._ended["launcher"] = process
        return startup

    def mark(self, piece: str) -> None:
        """The piece ends now."""
        if piece not in self._ended:
            self._ended[piece] = time.time()

    def ended(self, piece: str) -> float | None:
        """When a piece ended, in seconds since 1970; None before."""
        return self._ended.get(piece)

    def seconds(self) -> dict[str, float]:
        """Of each piece that has ended, in order."""
        times = list(self._ended.items())
        return {piece: round(end - began, 6) for (_, began), (piece, end) in pairwise(times)}

    def gathered(self, world: World) -> dict[str, dict[str, float]]:
        """Rank 0's pieces, and the longest of all ranks of each. Every rank must call it, when no clock runs."""
        everyone = [json.loads(text) for text in world.from_all(json.dumps(self.seconds()))]
        slowest = {piece: max(seconds[piece] for seconds in everyone) for piece in everyone[0]}
        return {"seconds": everyone[0], "slowest": slowest}


def process_started() -> float:
    """When this process began, in seconds since 1970: to 10 ms from Linux, else when this module was imported.

    A shell script that became this process by exec counts.
    """
    try:
        # field 22 of proc(5)'s stat, behind the name, which may hold blanks: clock ticks since the machine started
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        return time.time() - (time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))
    except (OSError, AttributeError):
        return _IMPORTED
