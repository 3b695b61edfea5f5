"""Each way to sum a gradient over real gloo ranks, against the plain sum."""

import pytest

from bertbench.config.optimizer import Compression
from bertbench.distributed.world import World
from bertbench.gradients.exchange import Exchange
from bertbench.gradients.gradient_sum import ELEMENT_SUMS
from tests.gradients.summed import ELEMENTS, Summed, assert_all_have_the_sum, summed_by
from tests.ranks import run_ranks

TOLERANCES: dict[Compression, float] = {
    # of the largest element: fp16 keeps 11 bits, bf16 8, and a sum of four rounds four times
    "none": 1e-6,
    "fp16": 2e-3,
    "bf16": 2e-2,
}
RANKS = 4


def summed_each_way(world: World) -> dict[Compression, Summed]:
    """Take steps by each compression."""
    return {compression: summed_by(ELEMENT_SUMS[compression](Exchange()), world) for compression in TOLERANCES}


@pytest.fixture(scope="module")
def summed() -> dict[Compression, list[Summed]]:
    """For each compression, return the state of each rank."""
    ranks = run_ranks(RANKS, summed_each_way)
    return {compression: [answer[compression] for answer in ranks] for compression in TOLERANCES}


@pytest.mark.parametrize("compression", TOLERANCES)
def test_every_rank_gets_the_same_sum_of_all_gradients(
    summed: dict[Compression, list[Summed]], compression: Compression
) -> None:
    assert_all_have_the_sum(summed[compression], TOLERANCES[compression])


@pytest.mark.parametrize(("compression", "element_bytes"), [("none", 4), ("fp16", 2), ("bf16", 2)])
def test_a_rank_contributes_4_or_2_bytes_per_element(
    summed: dict[Compression, list[Summed]], compression: Compression, element_bytes: int
) -> None:
    for rank in summed[compression]:
        assert rank.sent_bytes == rank.stated_bytes == element_bytes * ELEMENTS
