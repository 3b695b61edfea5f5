from random import Random

import numpy as np
import pytest
import torch

from bertbench.balance.random_samples import draw_lengths, predictions, samples_of
from bertbench.common.errors import RunError
from bertbench.loading.batch import Batch, batch_of
from bertbench.loading.filler import Bins, fill_to, filled, size_of, static_size
from bertbench.model.loss import IGNORED
from bertbench.model.sequences import EqualLengths
from tests.tiny import Sample, columns_of


@pytest.mark.parametrize(
    ("count", "size"), [(1, 16), (16, 16), (17, 32), (1024, 1024), (1025, 1040), (2049, 2080), (12_289, 12_416)]
)
def test_sizes_are_the_multiples_of_a_64th_of_the_last_power_of_two_or_of_16(count: int, size: int) -> None:
    assert static_size(count) == size


def test_a_filled_batch_is_the_batch_and_then_sequences_without_labels() -> None:
    batch = batch_of(
        columns_of(
            [
                Sample([2, 5, 6, 7, 3], [0, 0, 1, 1, 1], [1, 3], [8, 9], 1),
                Sample([2, 5, 3, 7, 3], [0, 0, 0, 1, 1], [2], [7], 0),
                Sample([2, 5, 3], [0, 0, 1], [1], [6], 1),
            ]
        )
    )
    fuller = filled(batch)
    # 13 tokens become 16; 4 masked tokens and 4 sequences' firsts become 16
    assert fuller.sequences.cu_seqlens_S1.tolist() == [0, 5, 10, 13, 16]
    assert fuller.sequences.groups == (EqualLengths(0, 2, 5), EqualLengths(10, 2, 3))
    added = {
        "tokens_T": [0] * 3, "segments_T": [0] * 3, "positions_T": [0, 1, 2], "masked_at_M": [15] * 8,
        "masked_labels_M": [IGNORED] * 8, "next_sentence_S": [IGNORED],
    }  # fmt: skip
    for name, values in added.items():
        before, after = getattr(batch, name), getattr(fuller, name)
        assert after.tolist() == [*before.tolist(), *values], name
        assert after.dtype == before.dtype, name
    assert fuller.sequences.cu_seqlens_S1.dtype == torch.int32  # the flash kernel's


def test_filler_is_never_longer_than_the_longest_sequence() -> None:
    batch = batch_of(columns_of([Sample([2, 5, 3], [0, 0, 1], [1], [6], 1)]))
    fuller = filled(batch)
    assert np.diff(fuller.sequences.cu_seqlens_S1.numpy()).tolist() == [3, 3, 3, 3, 3, 1]
    assert fuller.sequences.longest == 3


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
