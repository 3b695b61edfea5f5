"""The watchdog of one rank: its heartbeats, and the effects of its verdict before it ends the process."""

import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from torch.distributed import HashStore

from bertbench.distributed.failure import FailureReport
from bertbench.distributed.rendezvous import Ranks
from bertbench.distributed.watchdog import Limits, Watchdog
from tests.ranks import CONTEXT, LIMIT_S
from tests.whole_runs import wait_for


class PassingFailure:
    """A store that refuses requests for a moment, and counts those that it refused and answered."""

    def __init__(self) -> None:
        self.store = HashStore()
        self.left_to_refuse = 0
        self.refused = 0
        self.answered = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def multi_get(self, keys: list[str]) -> list[bytes]:
        if self.left_to_refuse:
            self.left_to_refuse -= 1
            self.refused += 1
            raise RuntimeError("Connection reset by peer")
        self.answered += 1
        return self.store.multi_get(keys)


def test_a_heartbeat_that_fails_is_sent_again() -> None:
    store, ranks = PassingFailure(), Ranks(0, 1, 0, 1)
    watchdog = Watchdog(store, ranks, FailureReport(store, ranks), Limits(3.0, 60.0))  # ten rounds of 0.3 s
    watchdog.start()
    try:
        wait_for(lambda: store.answered > 0, 5)
        store.left_to_refuse = 1
        wait_for(lambda: store.refused == 1, 5)
        answered_before = store.answered
        wait_for(lambda: store.answered > answered_before, 5)
    finally:
        watchdog.close()


@pytest.mark.parametrize(("body_fails", "closed"), [(False, True), (True, False)])
def test_a_verdict_closes_the_log_while_its_body_runs_and_not_after_it_failed(
    tmp_path: Path, body_fails: bool, closed: bool
) -> None:
    log = tmp_path / "closed"
    process = CONTEXT.Process(target=lose_the_store, args=(log, tmp_path / "printed", body_fails))
    process.start()
    process.join(LIMIT_S)
    assert process.exitcode == 1, "by the verdict"
    cause = "rank 0 of 1: no sign of life"
    assert cause in (tmp_path / "printed").read_text()
    assert log.exists() == closed
    assert not closed or cause in log.read_text()


def lose_the_store(log: Path, printed: Path, body_fails: bool) -> None:
    """Act as a rank that loses its store in the body of `closing_log`, or after an error that ended it."""
    os.dup2(os.open(printed, os.O_WRONLY | os.O_CREAT), sys.stderr.fileno())
    store, ranks = PassingFailure(), Ranks(0, 1, 0, 1)
    watchdog = Watchdog(store, ranks, FailureReport(store, ranks), Limits(0.3, 60.0))
    try:
        with watchdog.closing_log(log.write_text):
            if body_fails:
                raise ValueError
            wait_for_a_verdict(watchdog, store)
    except ValueError:
        wait_for_a_verdict(watchdog, store)


def wait_for_a_verdict(watchdog: Watchdog, store: PassingFailure) -> None:
    store.left_to_refuse = sys.maxsize
    watchdog.start()
    time.sleep(LIMIT_S)
