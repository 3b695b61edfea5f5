"""A requested number of buckets: exactly that many, of whole tensors in order, as equal as those allow."""

import pytest
import torch
from torch import nn

from bertbench.common.errors import ConfigError
from bertbench.gradients.buckets import bucket_table, split_evenly
from bertbench.model.bert import Bert
from bertbench.model.shape import BertShape


@pytest.mark.parametrize(
    ("sizes", "groups", "counts"),
    [
        ([4, 1, 1, 2], 2, [1, 3]),
        ([9, 1, 1, 1], 3, [1, 1, 2]),  # the first is larger than a third of all
        ([1, 1, 1, 9], 3, [2, 1, 1]),  # a third is 4: two are nearest, since the next groups need one each
        ([5, 5, 5], 3, [1, 1, 1]),
    ],
)
def test_tensors_are_split_in_order_into_groups_of_nearly_equal_sizes(
    sizes: list[int], groups: int, counts: list[int]
) -> None:
    assert split_evenly(sizes, groups) == counts


def test_bert_large_is_split_into_any_number_of_buckets_up_to_the_number_of_tensors() -> None:
    with torch.device("meta"):
        parameters = list(Bert(BertShape()).parameters())[::-1]
    for buckets in (1, 22, len(parameters)):
        table = bucket_table(parameters, None, buckets)
        assert len(table) == buckets
        assert all(a is b for a, b in zip([p for bucket in table for p in bucket], parameters, strict=True))
    elements = [sum(p.numel() for p in bucket) for bucket in bucket_table(parameters, None, 22)]
    *others, positions, words = elements  # the word embeddings, 31 million of 336, are one tensor
    assert (positions, words > 31_000_000) == (512 * 1024, True)
    assert max(others) / min(others) < 1.4


def test_more_buckets_than_tensors_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"communication\.buckets 3"):
        bucket_table(list(nn.Linear(2, 2).parameters()), None, 3)
