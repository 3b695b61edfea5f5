"""When one rank gets a signal, all ranks stop after the same step, and further signals don't disturb their exit."""

import os
import signal
from collections.abc import Mapping

import pytest

from bertbench.common.errors import ConfigError, StoppedError
from bertbench.config import System
from bertbench.distributed.preemption import Preemption, stop_at_once
from bertbench.distributed.ranks import launched_ranks
from bertbench.distributed.world import World
from bertbench.launch.rank import as_rank
from lab.spawn import environments_of
from tests.conftest import Tiny
from tests.ranks import CONTEXT, run_ranks


def steps_until_stopped(world: World, every: int) -> tuple[int, str, str | None]:
    """The step after which this rank ends, with what error, and what rank 0 would log; rank 1 is signalled at 3."""
    ended: tuple[int, str, str | None] = 9, "", None
    with Preemption(world, every) as preemption:
        for step in range(1, 9):
            if (world.rank, step) == (1, 3):
                os.kill(os.getpid(), signal.SIGUSR1)
            if preemption.stops_after(step):
                ended = step, str(preemption.error(step)), world.failure.reported()
                os.kill(os.getpid(), signal.SIGTERM)  # noted
                break
    os.kill(os.getpid(), signal.SIGTERM)  # ignored
    return ended


def test_all_ranks_stop_one_step_after_a_rank_receives_the_signal() -> None:
    for step, error, cause in run_ranks(2, steps_until_stopped, 1):
        assert step == 4
        assert "after step 4" in error
        assert cause == "rank 1: stopped by SIGUSR1"


def test_over_a_slow_link_ranks_ask_each_other_every_few_steps_only() -> None:
    assert [ended for ended, _, _ in run_ranks(2, steps_until_stopped, 4)] == [8, 8]


def stopped_at_once(world: World) -> str:
    stop_at_once()
    with pytest.raises(StoppedError) as reported:
        os.kill(os.getpid(), signal.SIGUSR1)
    return f"{reported.value}, {reported.value.exit_code}"


def test_a_rank_that_has_not_begun_to_train_stops_at_once() -> None:
    assert run_ranks(1, stopped_at_once) == ["stopped by SIGUSR1, 75"]


def test_a_rank_that_exits_with_an_error_keeps_its_exit_code_when_it_is_stopped(tiny: Tiny) -> None:
    process = CONTEXT.Process(target=mistaken, args=(*environments_of(1), tiny("launch.ranks_per_node=1")))
    process.start()
    process.join(60)
    assert process.exitcode == 2


def mistaken(environment: Mapping[str, str], system: System) -> None:
    os.environ.update(environment)
    ranks = launched_ranks(os.environ)
    assert ranks is not None
    with as_rank(system, ranks) as world:
        stop_at_once()
        # another rank may end with the cause before it is reported here: then the agent stops this one
        world.failure.let_others_read = lambda lost=0: os.kill(os.getpid(), signal.SIGTERM)  # type: ignore[method-assign]
        raise ConfigError("a mistake")
