"""Assignments of samples to ranks, small enough to work out by hand, and the costs that they follow."""

import numpy as np
import pytest

from bertbench.balance.assignment import assign_by_cost, assign_by_length
from bertbench.balance.cost import BERT_LARGE, CostModel
from bertbench.balance.random_samples import draw_lengths
from bertbench.model.shape import BertShape

LINEAR = CostModel(1.0, 0.0).of_length


def test_a_snake_turns_and_a_raster_doesn_t() -> None:
    lengths = np.array([[5, 9, 1, 7, 3, 8]])  # longest first: 9 8 | 7 5 | 3 1
    assert assign_by_length(lengths, 2, "snake").tolist() == [[0, 0, 1, 1, 0, 1]]
    assert assign_by_length(lengths, 2, "raster").tolist() == [[1, 0, 1, 0, 0, 1]]


def test_a_group_keeps_its_samples() -> None:
    lengths = np.array([[5, 9], [30, 20]])
    assert assign_by_length(lengths, 2, "snake").tolist() == [[1, 0], [0, 1]]
    assert assign_by_cost(lengths, 2, LINEAR, equal_counts=False).tolist() == [[1, 0], [0, 1]]


def test_the_costliest_sample_is_assigned_first_and_to_the_least_loaded_rank() -> None:
    # 9 | 5, then 4 to the 5: 9 | 9, then 2 and 1 one each
    ranks = assign_by_cost(np.array([[2, 9, 4, 1, 5]]), 2, LINEAR, equal_counts=False)[0]
    loads = np.bincount(ranks, [2, 9, 4, 1, 5])
    assert sorted(loads) == [10, 11]
    assert sorted(np.bincount(ranks)) == [2, 3]


def test_a_swap_improves_a_greedy_assignment() -> None:
    # greedy: 8 + 5 + 4 against 7 + 6 (the rule gives 17 and 13); 15 and 15 once 8 + 7 stand against 6 + 5 + 4
    lengths = np.array([[8, 7, 6, 5, 4]])
    assert np.bincount(assign_by_cost(lengths, 2, LINEAR, equal_counts=False)[0], lengths[0]).tolist() == [15, 15]


@pytest.mark.parametrize("ranks", [3, 7])
def test_equal_counts_keep_as_many_samples_on_every_rank(ranks: int) -> None:
    lengths = draw_lengths(ranks * 5, 1)[None]
    assigned = assign_by_cost(lengths, ranks, BERT_LARGE.of_length, equal_counts=True)[0]
    assert np.bincount(assigned).tolist() == [5] * ranks


def test_every_rank_gets_a_sample_even_if_few_are_costly() -> None:
    lengths = np.array([[512, *[1] * 12]])
    assert np.bincount(assign_by_cost(lengths, 13, LINEAR, equal_counts=False)[0], minlength=13).tolist() == [1] * 13


def test_bert_large_s_cost_follows_from_its_shape() -> None:
    made = CostModel.of_shape(BertShape(vocab_size=30_522))
    assert made.linear == pytest.approx(BERT_LARGE.linear, rel=1e-4)
    assert made.quadratic == pytest.approx(BERT_LARGE.quadratic, rel=1e-4)
    assert BERT_LARGE.of_length[512] == pytest.approx(1840.87e6 * 512 + 0.58982e6 * 512**2)


def test_a_causal_model_attends_to_half_of_the_pairs_and_reads_every_token() -> None:
    shape = BertShape(vocab_size=5, hidden_size=2, layers=1, feed_forward_size=3)
    # 6 (4 x 4 + 2 x 2 x 3) = 168 a token, 12 x 2 = 24 a pair, 6 (4 + 2 x 5) = 84 a token that the head reads
    bert, causal = (CostModel.of_shape(shape, causal=causal) for causal in (False, True))
    assert (bert.linear, bert.quadratic) == pytest.approx((168 + 0.1493 * 84, 2 * 24))
    assert (causal.linear, causal.quadratic) == (168 + 84, 24)


def test_ranks_of_equal_load_take_samples_in_their_order_on_every_processor() -> None:
    lengths = np.repeat([5, 4, 1], [18, 19, 37])[None]
    assigned = assign_by_cost(lengths, 37, np.arange(6.0), equal_counts=True)
    # the second row begins with the ranks that have 4 tokens
    assert assigned[0].tolist() == [*range(37), *range(18, 37), *range(18)]
