"""Heartbeats go on after a request to the store that fails, as in a network that is lost for a moment."""

import time
from typing import Any

from torch.distributed import HashStore

from bertbench.distributed.failure import FailureReport
from bertbench.distributed.rendezvous import Ranks
from bertbench.distributed.watchdog import Limits, Watchdog
from tests.training.test_run import wait_for


class PassingFailure:
    """A store that refuses the requests of a moment."""

    def __init__(self) -> None:
        self.store, self.refused, self.left_to_refuse = HashStore(), 0, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def multi_get(self, keys: list[str]) -> list[bytes]:
        if self.left_to_refuse:
            self.left_to_refuse -= 1
            self.refused += 1
            raise RuntimeError("Connection reset by peer")
        return self.store.multi_get(keys)


def test_a_heartbeat_that_fails_is_sent_again() -> None:
    store, ranks = PassingFailure(), Ranks(0, 1, 0, 1)
    watchdog = Watchdog(store, ranks, FailureReport(store, ranks), Limits(3.0, 60.0))  # ten rounds of 0.3 s
    watchdog.start()
    try:
        wait_for(lambda: watchdog._answers > 0, 5)  # a heartbeat that is answered shows nowhere else
        store.left_to_refuse = 1
        wait_for(lambda: store.refused == 1, 5)
        before = watchdog._answers
        time.sleep(0.9)
        assert watchdog._answers > before
    finally:
        watchdog.close()
