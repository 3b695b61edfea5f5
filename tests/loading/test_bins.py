from random import Random

import numpy as np
import pytest

from bertbench.balance.lengths import draw_lengths, predictions
from bertbench.common.errors import RunError
from bertbench.loading.batch import Batch, batch_of
from bertbench.loading.bins import Bins, fill_to, size_of
from bertbench.loading.random_samples import samples_of

LENGTHS = np.maximum(draw_lengths(4_000, seed=1), 5)
COUNT = 16
BINS = Bins(LENGTHS, predictions(LENGTHS), COUNT, longest=512)


def drawn(lengths: np.ndarray, seed: int = 0) -> Batch:
    return batch_of(samples_of(np.sort(lengths)[::-1], seed))


def test_filler_sequences_have_a_token_each_and_fit_the_model() -> None:
    for size in BINS.all:
        filled = fill_to(drawn(np.array([5])), size)
        lengths = filled.sequences.cu_seqlens_S1.diff()[1:]
        assert lengths.min() >= 1
        assert lengths.max() <= 512
        assert filled.positions_T.max() < 512
        assert filled.positions_T[filled.sequences.cu_seqlens_S1[:-1].long()].eq(0).all()


def test_every_batch_that_a_dataset_can_give_fits_and_a_few_sizes_serve_all() -> None:
    random = Random(1)
    used, real, all_tokens = set(), 0, 0
    for number in range(300):
        batch = drawn(np.array(random.choices(LENGTHS.tolist(), k=COUNT)), number)
        filled = BINS.fill(batch)
        used.add(size_of(filled))
        real += len(batch.tokens_T)
        all_tokens += len(filled.tokens_T)
    assert used <= set(BINS.all)
    assert len(BINS.all) <= 8
    assert all_tokens < 1.15 * real  # of random draws, whose deviation at 16 samples is 15 % of the mean
    longest = BINS.fill(drawn(np.full(COUNT, 512)))
    assert size_of(longest) == BINS.all[-1]
    assert size_of(BINS.fill(drawn(np.full(COUNT - 3, 5)))) == BINS.all[0]


def test_a_batch_that_no_bin_holds_is_one_clear_error() -> None:
    with pytest.raises(RunError, match=r"17 sequences.*larger than the largest.*compute.compile to default"):
        BINS.fill(drawn(np.full(COUNT + 1, 512)))
