"""Parameter servers of `lab exchange`: rules by hand, sums on gloo ranks, and a rank that is killed."""

import os
import signal
import threading
import time
from functools import partial

import pytest
import torch

from bertbench.common.errors import RunError
from bertbench.distributed.world import World
from lab.bench.exchange import Settings, run_variant, started
from lab.exchange.server import Asynchronous, Bounded, FirstOfStep, ParameterServer, Shard
from lab.exchange.wire import Wire
from lab.spawn import on_ranks
from tests.ranks import run_ranks


def gradient(number: float) -> torch.Tensor:
    return torch.tensor([number])


def test_with_bound_zero_no_worker_is_answered_before_the_sum_is_complete() -> None:
    shard = Bounded(elements=1, workers=3, rate=3.0, bound=0)
    assert shard.push(2, gradient(5)) == []
    assert shard.push(0, gradient(1)) == []
    assert shard.push(1, gradient(2)) == [2, 0, 1]
    assert shard.weights.item() == -8  # 3 / 3 x (5 + 1 + 2)
    assert shard.stalenesses == [0, 0, 0]


def test_a_worker_gets_ahead_of_the_slowest_by_the_bound_and_no_further() -> None:
    shard = Bounded(elements=1, workers=2, rate=2.0, bound=1)
    assert shard.push(0, gradient(1)) == [0]  # one step ahead
    assert shard.push(0, gradient(10)) == []  # would be two
    assert shard.push(1, gradient(100)) == [0, 1]  # now 2 steps and 1
    assert shard.weights.item() == -111
    assert shard.stalenesses == [1, 1, 0]


def test_the_asynchronous_rate_is_divided_by_one_and_the_staleness() -> None:
    shard = Asynchronous(elements=1, workers=3, rate=6.0)
    assert shard.push(0, gradient(1)) == [0]
    assert shard.push(1, gradient(1)) == [1]  # one gradient of others since it read
    assert shard.push(2, gradient(1)) == [2]  # two
    assert shard.push(2, gradient(1)) == [2]  # none
    assert shard.stalenesses == [0, 1, 2, 0]
    assert shard.weights.item() == -(6 + 3 + 2 + 6)


def test_the_slowest_of_a_step_is_dropped_and_joins_the_next() -> None:
    shard = FirstOfStep(elements=1, workers=3, rate=2.0, needed=2, steps=2)
    assert shard.push(0, gradient(1)) == []
    assert shard.push(2, gradient(3)) == [0, 2]
    assert shard.weights.item() == -4  # 2 / 2 x (1 + 3)
    assert shard.push(1, gradient(50)) == [1]  # late
    assert (shard.dropped, shard.weights.item()) == (1, -4)
    assert shard.push(1, gradient(5)) == []
    assert shard.push(0, gradient(7)) == [1, 0]
    assert shard.weights.item() == -16
    # the others are done: the last worker's gradient is late, and nobody waits for it
    assert shard.push(2, gradient(9)) == [2]
    assert (shard.dropped, shard.weights.item()) == (2, -16)


def test_when_the_last_worker_is_dropped_those_that_wait_for_it_continue() -> None:
    shard = FirstOfStep(elements=1, workers=2, rate=1.0, needed=1, steps=1)
    assert shard.push(1, gradient(4)) == [1]
    assert shard.push(0, gradient(4)) == [0]
    shard = FirstOfStep(elements=1, workers=3, rate=1.0, needed=2, steps=2)
    shard.push(0, gradient(1))
    shard.push(1, gradient(1))
    assert shard.push(0, gradient(3)) == []  # its last
    assert shard.push(2, gradient(0)) == [2]  # late
    assert shard.push(2, gradient(5)) == [0, 2]


def bounded(elements: int, rate: float, steps: int, bound: int) -> Shard:
    del steps
    return Bounded(elements, 4, rate, bound)


def stepped(world: World) -> dict[str, tuple[list[float], int, int, list[int]]]:
    """Return the weights after two steps of gradients (worker + 1) x [1 ... 13], and what was sent."""
    answers = {}
    for servers, bound in ((1, 0), (2, 0), (1, 4)):
        variant = ParameterServer(4, servers, partial(bounded, bound=bound), in_step=bound == 0)
        wire = Wire(world.rank, 4)
        weights = torch.zeros(13)
        stalenesses: list[int] = []
        if world.rank < 4:
            for number in range(2):
                variant.step(wire, weights, torch.arange(1.0, 14.0) * (world.rank + 1), 4.0, number)
        elif world.rank < 4 + servers:
            stalenesses = variant.serve(wire, world.rank - 4, 13, 4.0, steps=2)
        world.barrier()
        answers[f"{servers} servers, bound {bound}"] = (weights.tolist(), wire.messages, wire.bytes, stalenesses)
    return answers


def test_servers_return_the_all_reduces_sum_and_send_the_bytes_of_the_formula() -> None:
    answers = run_ranks(6, stepped)
    for name, servers in (("1 servers, bound 0", 1), ("2 servers, bound 0", 2)):
        for worker in answers[:4]:  # 2 steps x 4 / 4 x (1 + 2 + 3 + 4) x number
            assert worker[name][0] == [-20.0 * number for number in range(1, 14)]
        # per step, 4 workers send 52 bytes up and get 52 down
        assert sum(rank[name][1] for rank in answers) == 2 * 8 * servers
        assert sum(rank[name][2] for rank in answers) == 2 * 8 * 52
    formula = ParameterServer(4, 2, partial(bounded, bound=0), in_step=True).formula(13)
    assert (formula.messages, formula.bytes) == (16, 8 * 52)
    assert max(answers[4]["1 servers, bound 4"][3]) <= 4


def with_a_victim(world: World, victim: int) -> None:
    """Start a long run of a server and a worker, and kill one of them."""
    if world.rank == victim:
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGKILL)).start()
    variant = ParameterServer(1, 1, one_worker, in_step=True)
    run_variant(world, variant, Settings((), 100_000, 0.001, 1))


def one_worker(elements: int, rate: float, steps: int) -> Shard:
    del steps
    return Bounded(elements, 1, rate, bound=0)


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_worker_or_server_ends_the_run_with_its_name(victim: int) -> None:
    began = time.monotonic()
    with pytest.raises(RunError, match=rf"rank {victim} .* was killed by SIGKILL; the other ranks were stopped"):
        started(partial(on_ranks, 2), with_a_victim, victim)
    assert time.monotonic() - began < 120  # two processes import torch on a busy machine
