"""Notice that a machine's wall clock is set while a run is timed by it."""

import time

_MOST_S = 1.0  # by which a clock may be set
_MOST_OF_RUN = 1e-3  # by which it may be set, as a share of the time so far
_NOISE_S = 0.01  # a thread may have to wait between its readings of the two clocks


class WallClock:
    """Notices that the wall clock, from which a log has its times, is set from now on, by the monotonic clock.

    A clock is set by hand, by NTP after a boot with a wrong time, or when a virtual machine or a laptop wakes. NTP's
    usual corrections change the rate of both clocks alike, and aren't noticed.
    """

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self._ahead_s = _ahead_s()

    def set_by_s(self) -> float:
        """Return by how many seconds it was set forward, or back if negative; 0 if that hardly changes a time to train.

        That is a second at most, and at most a thousandth of the time since the beginning.
        """
        set_by_s = _ahead_s() - self._ahead_s
        allowed_s = min(_MOST_S, _MOST_OF_RUN * (time.monotonic() - self._began_s))
        return round(set_by_s, 3) if abs(set_by_s) > max(allowed_s, _NOISE_S) else 0.0


def _ahead_s() -> float:
    """Return how far the wall clock is ahead of the monotonic clock."""
    return time.time() - time.monotonic()
