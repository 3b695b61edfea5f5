"""Gossip of `lab exchange`: pairs of ranks exchange weights."""

import torch

from bertbench.distributed.world import World
from lab.exchange.gossip import Gossip
from lab.exchange.wire import Wire
from tests.ranks import run_ranks


def gossiped(world: World) -> tuple[list[float], int, int]:
    """Return the weights after each of two steps without gradients, from 1, 3, 5 and 11, and what was sent."""
    wire = Wire(world.rank, world.size)
    weights = torch.tensor([(1.0, 3.0, 5.0, 11.0)[world.rank]])
    seen = []
    for number in range(2):
        Gossip(4).step(wire, weights, torch.zeros(1), 1.0, number)
        seen.append(weights.item())
    return seen, wire.messages, wire.bytes


def test_pairs_take_their_mean_and_two_steps_reach_all_four() -> None:
    answers = run_ranks(4, gossiped)
    assert [seen for seen, _, _ in answers] == [[2, 5], [2, 5], [8, 5], [8, 5]]  # the mean stays 5
    assert all((messages, size) == (2, 8) for _, messages, size in answers)
    formula = Gossip(4).formula(1)
    assert (formula.messages, formula.bytes) == (4, 16)
