"""Name the pieces of a run's start-up, from launch to first step, which bertbench logs as event `startup`."""

from typing import NamedTuple

KEY = "startup"
UNTIMED = ("launcher", "imports", "meeting", "files", "caches", "data", "model", "warm-up", "rest", "waiting")
"""From launch to run_start, in this order; docs/running.md explains each."""
TIMED = ("plan", "shards", "first batch", "first step")
"""From run_start to the end of the first step."""


class Startup(NamedTuple):
    """Seconds of each piece on the logging rank, and on each piece's slowest rank."""

    untimed_s: dict[str, float]
    timed_s: dict[str, float]
    slowest_s: dict[str, float]

    @property
    def before_first_step_s(self) -> float:
        """Return the seconds from run_start to the start of the first step: on the clock, before training."""
        return sum(seconds for piece, seconds in self.timed_s.items() if piece != TIMED[-1])
