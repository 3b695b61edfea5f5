"""Ring, tree and hierarchical all-reduce of `lab exchange`: sums and traffic on four gloo ranks."""

from collections.abc import Callable

import torch
from torch import Tensor

from bertbench.distributed.world import World
from lab.exchange.all_reduce import (
    gloo,
    hierarchical,
    hierarchical_formula,
    ring,
    ring_formula,
    tree,
    tree_formula,
)
from lab.exchange.wire import Wire
from tests.ranks import run_ranks

REDUCERS = {"gloo": gloo, "ring": ring, "tree": tree, "hierarchical": hierarchical}


def reduced(
    world: World, reducers: dict[str, Callable[[Wire, Tensor], None]]
) -> dict[str, tuple[list[float], int, int]]:
    """Return each sum of (rank + 1) x [1, 2, ..., 13], with the messages and bytes that this rank sent."""
    answers = {}
    for name, reduce in reducers.items():
        wire = Wire(world.rank, world.size)
        tensor = torch.arange(1.0, 14.0) * (world.rank + 1)
        reduce(wire, tensor)
        answers[name] = (tensor.tolist(), wire.messages, wire.bytes)
    return answers


def test_every_all_reduce_gives_all_ranks_the_sum_and_sends_the_bytes_of_its_formula() -> None:
    answers = run_ranks(4, reduced, REDUCERS)
    for name in REDUCERS:
        for rank in answers:
            assert rank[name][0] == [10.0 * number for number in range(1, 14)]  # 1 + 2 + 3 + 4 = 10

    def sent(name: str) -> tuple[int, int]:
        return sum(rank[name][1] for rank in answers), sum(rank[name][2] for rank in answers)

    # 13 weights are 52 bytes. Ring: 6 rounds of 4 messages, in each of which all chunks pass once.
    assert sent("ring") == (24, 6 * 52)
    # Tree: halves (2 pairs of 52 bytes), quarters (2 pairs of 28 and 24 bytes, in all 52), and the same back.
    assert sent("tree") == (16, 6 * 52)
    # Hierarchical: 2 to the leaders, 2 between them, 2 back, each of 52 bytes.
    assert sent("hierarchical") == (6, 6 * 52)
    formulas = {"ring": ring_formula, "tree": tree_formula, "hierarchical": hierarchical_formula}
    for name, formula in formulas.items():
        expected = formula(4, 52)
        assert sent(name) == (expected.messages, expected.bytes)


def test_the_alpha_beta_model_counts_a_latency_per_round_and_the_bytes_of_the_link() -> None:
    # 4,000 bytes at 1 MB/s take 4 ms; each round adds 10 ms.
    seconds = [formula(4, 4_000).seconds(0.01, 1e6) for formula in (ring_formula, tree_formula, hierarchical_formula)]
    # ring: 6 rounds of a quarter; tree: 2 rounds, in each both ranks of a host send a quarter; leaders: all, once
    assert [round(value, 6) for value in seconds if value is not None] == [0.066, 0.024, 0.014]
