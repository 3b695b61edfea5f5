"""The start-up of a rank, piece by piece: as it is measured, and as the report shows it."""

import time

import pytest

from bertbench.distributed.startup import LAUNCHED, Startup
from bertbench.report.details import details


def test_no_piece_takes_less_than_nothing_if_clocks_disagree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LAUNCHED, str(time.time()))  # this process began before it was launched, by Linux's coarse clock
    startup = Startup.of_rank()
    startup.mark("imports")
    launcher, imports = startup.seconds().values()
    assert launcher == 0
    assert 0 <= imports < 60


def test_a_piece_just_below_nothing_is_shown_without_a_sign() -> None:
    startup = {"untimed_s": {"launcher": -0.004}, "timed_s": {}, "slowest_s": {"launcher": 0.006}}
    row = {"log": "bert/result_9.txt", "startup": startup, "ledger": None, "energy": None}
    times = {"startup_s": 0.0, "time_to_train_s": None, "initialisation_s": None}
    ((_, _, head, (of_rank, slowest), *_),) = details({"runs": [row | times]})
    assert head[:2] == ["run", "launcher"]
    assert (of_rank[:2], slowest[:2]) == (["result_9", "0.00"], ["slowest rank", "0.01"])
