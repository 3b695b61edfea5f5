"""Sums of low-rank factors, on real gloo ranks."""

from bertbench.config.optimizer import GRADIENT_BYTES
from bertbench.distributed.world import World
from lab.techniques.powersgd import PowerSgdSum, sent_elements
from tests.gradients.summed import ELEMENTS, Summed, assert_all_have_the_sum, summed_by
from tests.ranks import run_ranks


def test_factors_of_enough_rank_give_every_rank_the_sum_for_the_bytes_of_the_formula() -> None:
    ranks = run_ranks(4, summed_in_factors)
    assert_all_have_the_sum(ranks, 1e-3)
    for rank in ranks:
        # rank 3 of 19 x 23 and 29 x 19, and the vectors of 19 and 29
        assert rank.sent_bytes == rank.stated_bytes == 4 * (3 * (19 + 23) + 3 * (29 + 19) + 19 + 29)
        assert rank.sent_bytes < GRADIENT_BYTES * ELEMENTS


def summed_in_factors(world: World) -> Summed:
    """A gradient matrix has at most rank 2 on each of the ranks, all along one input, so rank 3 finds the sum."""
    return summed_by(PowerSgdSum(rank=3, start_step=2), world, steps=3)


def test_factors_are_sent_of_the_matrices_for_which_that_saves_bytes() -> None:
    # 100 x 50 at rank 4: 4 x 150 elements in place of 5,000; 6 x 5: its factors would be more than half of it
    assert [sent_elements(shape, 4) for shape in ((100, 50), (6, 5), (7,))] == [600, 30, 7]
