"""Whether balanced batches are still random draws from the dataset."""

import numpy as np
import pytest

from bertbench.balance.plan import METHODS, Method
from bertbench.data.store.columns import lengths_of
from tests.balance.populations import planner, wikipedia_index

ENTRIES = wikipedia_index(5_003)
BATCH = 32
RUNS = 100
# 99.9 % quantiles of chi-square with 7 and with 31 degrees of freedom
CHI_SQUARE_7, CHI_SQUARE_31 = 24.32, 61.10


@pytest.mark.parametrize("method", METHODS)
def test_every_length_and_every_sample_is_drawn_as_often_as_the_dataset_has_it(method: Method) -> None:
    lengths = lengths_of(ENTRIES)
    edges = np.quantile(lengths, np.arange(1, 8) / 8)
    # the tenth step of runs with different seeds: draws that know nothing of each other
    plans = (planner(method, ENTRIES, BATCH, seed=seed).plan(9) for seed in range(RUNS))
    drawn = np.concatenate([plan.assigned.ids_S for plan in plans])
    places = np.arange(5_003) * 32 // 5_003  # in the dataset
    for groups, limit in ((np.searchsorted(edges, lengths), CHI_SQUARE_7), (places, CHI_SQUARE_31)):
        observed, there = np.bincount(groups[drawn]), np.bincount(groups)
        expected = there / 5_003 * len(drawn)
        assert ((observed - expected)[there > 0] ** 2 / expected[there > 0]).sum() < limit
