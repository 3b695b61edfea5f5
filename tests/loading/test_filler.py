import numpy as np
import pytest
import torch

from bertbench.loading.batch import batch_of
from bertbench.loading.filler import filled_to_round_size, round_number
from bertbench.model.loss import IGNORED
from bertbench.model.sequences import EqualLengths
from tests.tiny import Sample, columns_of


@pytest.mark.parametrize(("count", "size"), [(1, 16), (17, 32), (1024, 1024), (1025, 1040), (12_289, 12_416)])
def test_sizes_are_the_multiples_of_a_64th_of_the_last_power_of_two_or_of_16(count: int, size: int) -> None:
    assert round_number(count) == size


def test_a_filled_batch_is_the_batch_followed_by_sequences_without_labels() -> None:
    batch = batch_of(
        columns_of(
            [
                Sample([2, 5, 6, 7, 3], [0, 0, 1, 1, 1], [1, 3], [8, 9], 1),
                Sample([2, 5, 3, 7, 3], [0, 0, 0, 1, 1], [2], [7], 0),
                Sample([2, 5, 3], [0, 0, 1], [1], [6], 1),
            ]
        )
    )
    fuller = filled_to_round_size(batch)
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
    fuller = filled_to_round_size(batch)
    assert np.diff(fuller.sequences.cu_seqlens_S1.numpy()).tolist() == [3, 3, 3, 3, 3, 1]
    assert fuller.sequences.longest == 3
