"""The start-up of a rank, piece by piece, as it is measured."""

import time

import pytest

from bertbench.distributed.startup import LAUNCHED, Startup


def test_no_piece_has_a_negative_time_if_clocks_disagree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LAUNCHED, str(time.time()))  # this process began before it was launched, by Linux's coarse clock
    startup = Startup.of_rank()
    startup.mark("imports")
    launcher, imports = startup.seconds().values()
    assert launcher == 0
    assert 0 <= imports < 60
