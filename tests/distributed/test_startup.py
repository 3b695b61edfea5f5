"""The start-up of a rank, piece by piece, as it is measured."""

import time

from bertbench.distributed.startup import Startup


def test_no_piece_has_a_negative_time_if_clocks_disagree() -> None:
    startup = Startup.of_rank(launched=time.time())  # this process began before, by Linux's coarse clock
    startup.mark("imports")
    launcher, imports = startup.seconds().values()
    assert launcher == 0
    assert 0 <= imports < 60
