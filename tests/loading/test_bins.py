"""Sizes of recorded steps: there are few, all ranks have the same, and they fit the parts that they are for."""

from random import Random

import numpy as np
import pytest
import torch

from bertbench.balance.random_samples import draw_lengths, samples_of_lengths
from bertbench.loading.batch import Batch, batch_of
from bertbench.loading.bins import Bins, BinSampler, longest_part
from bertbench.loading.filler import filled_to_size, size_of
from bertbench.loading.inputs import open_data
from bertbench.loading.loader import Loader
from bertbench.training.build import make_sampler
from tests.conftest import Tiny

LENGTHS = np.maximum(draw_lengths(4_000, seed=1), 5).tolist()
COUNT = 16


def drawn(seed: int) -> Batch:
    lengths = Random(seed).choices(LENGTHS, k=COUNT)
    return batch_of(samples_of_lengths(np.sort(lengths)[::-1], seed))


def of_length(length: int, count: int) -> Batch:
    return batch_of(samples_of_lengths(np.full(count, length), 0))


BINS = Bins([size_of(drawn(seed)) for seed in range(200)], longest=512)


def test_filler_sequences_have_a_token_and_fit_the_model() -> None:
    for size in BINS.all:
        filled = filled_to_size(of_length(5, count=1), size)
        lengths = filled.sequences.cu_seqlens_S1.diff()[1:]
        assert lengths.min() >= 1
        assert lengths.max() <= 512
        assert filled.positions_T.max() < 512
        assert filled.positions_T[filled.sequences.cu_seqlens_S1[:-1].long()].eq(0).all()


def test_a_few_sizes_fit_other_draws_of_the_same_samples_with_little_filler() -> None:
    tokens = 0
    filled_tokens = 0
    for seed in range(1_000, 1_300):
        batch = drawn(seed)
        filled = BINS.fill(batch)
        assert size_of(filled) in BINS.all
        tokens += len(batch.tokens_T)
        filled_tokens += len(filled.tokens_T)
    assert len(BINS.all) <= 25
    assert filled_tokens < 1.05 * tokens  # the deviation of 16 samples is 18 % of the mean


def test_parts_of_one_size_need_one_bin() -> None:
    assert len(Bins([size_of(of_length(64, COUNT))] * 3, longest=512).all) == 1


def test_the_largest_bin_holds_the_largest_part_even_if_it_is_far_above_the_others() -> None:
    most = of_length(512, COUNT)
    bins = Bins([size_of(drawn(seed)) for seed in range(200)] + [size_of(most)], longest=512)
    assert size_of(bins.fill(most)) == bins.all[-1]
    assert bins.smallest_for(size_of(of_length(5, COUNT - 3))) == bins.all[0]
    with pytest.raises(AssertionError, match="no bin holds"):
        BINS.smallest_for(size_of(most))


@pytest.mark.parametrize(
    "choices",
    [
        ("data.balance=none",),
        ("data.balance=planned",),
        ("data.balance=packed",),
        ("data.balance=none", "data.gradient_accumulation_steps=3"),
    ],
)
def test_all_ranks_take_the_same_size_for_the_part_that_sends_gradients(choices: tuple[str, ...], tiny: Tiny) -> None:
    system = tiny("compute.compile=graphs", "schedule.max_steps=60", *choices)
    sampler = make_sampler(system, open_data(system)[0], 99)
    assert isinstance(sampler, BinSampler)
    own_sizes_differ = False
    for step in range(60):
        by_rank = [sampler.step(step, rank) for rank in range(2)]
        sizes = {planned.parts[-1].size for planned in by_rank}
        assert len(sizes) == 1
        assert None not in sizes
        own = {sampler.bins.smallest_for(sampler.size_of(planned.parts[-1])) for planned in by_rank}
        own_sizes_differ |= len(own) == 2
    if choices == ("data.balance=none",):
        assert own_sizes_differ, "the ranks' own sizes would have been different graphs"


def test_the_longest_part_is_that_of_the_fullest_rank_of_any_step_longest_sample_first(tiny: Tiny) -> None:
    system = tiny("data.balance=none")
    sampler = make_sampler(system, open_data(system)[0], 99)
    steps = range(7)
    of_ranks = [
        sampler.dataset.lengths(sampler.step(step, rank).parts[0].ids).tolist() for step in steps for rank in range(2)
    ]
    assert len({sum(lengths) for lengths in of_ranks}) > 7
    found = longest_part(sampler, steps).tolist()
    assert found == sorted(max(of_ranks, key=sum), reverse=True)


def test_batches_are_loaded_at_their_planned_sizes(tiny: Tiny) -> None:
    several_parts = ("data.balance=none", "data.gradient_accumulation_steps=3")
    system = tiny("compute.compile=graphs", "schedule.max_steps=12", *several_parts)
    sampler = make_sampler(system, open_data(system)[0], 99)
    for number, loaded in enumerate(Loader(sampler, 1, torch.device("cpu")).steps(range(12))):
        sizes = [part.size for part in sampler.step(number, 1).parts]
        assert [size_of(part.batch) for part in loaded.parts] == sizes
