"""What stood between the launch of a run and its first step, as bertbench's event `startup` logs it in seconds."""

from typing import NamedTuple

KEY = "startup"
UNTIMED = ("launcher", "imports", "meeting", "files", "caches", "data", "model", "warm-up", "rest", "waiting")
"""From launch to run_start, in this order; docs/running.md says what each is."""
TIMED = ("plan", "shards", "first batch", "first step")
"""From run_start to the end of the first step."""


class Startup(NamedTuple):
    """Seconds of each piece: on the rank that logs, and on the rank where each took longest."""

    untimed_s: dict[str, float]
    timed_s: dict[str, float]
    slowest_s: dict[str, float]

    @property
    def before_first_step_s(self) -> float:
        """From run_start until the first step could begin: on the clock, and no training."""
        return sum(seconds for piece, seconds in self.timed_s.items() if piece != TIMED[-1])
