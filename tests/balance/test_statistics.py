"""Whether balanced batches are still random draws from the dataset."""

from functools import cache

import numpy as np
import pytest

from bertbench.balance.plan import METHODS, Method, StepPlan
from bertbench.data.store.index import lengths_of, masked_of
from tests.balance.populations import planner, wikipedia_index

ENTRIES = wikipedia_index(5_003)
BATCH = 32
RUNS = 100
# 99.9 % quantiles of chi-square with 7 and with 31 degrees of freedom
CHI_SQUARE_7, CHI_SQUARE_31 = 24.32, 61.10


@cache
def first_plans(method: Method) -> list[StepPlan]:
    """The tenth step of runs with different seeds: draws that know nothing of each other."""
    return [planner(method, ENTRIES, BATCH, seed=seed).plan(9) for seed in range(RUNS)]


@pytest.mark.parametrize("method", METHODS)
def test_every_length_and_every_sample_is_drawn_as_often_as_the_dataset_has_it(method: Method) -> None:
    lengths = lengths_of(ENTRIES)
    edges = np.quantile(lengths, np.arange(1, 8) / 8)
    drawn = np.concatenate([plan.dealt.ids_S for plan in first_plans(method)])
    places = np.arange(5_003) * 32 // 5_003  # in the dataset
    for groups, limit in ((np.searchsorted(edges, lengths), CHI_SQUARE_7), (places, CHI_SQUARE_31)):
        observed, there = np.bincount(groups[drawn]), np.bincount(groups)
        expected = there / 5_003 * len(drawn)
        assert ((observed - expected)[there > 0] ** 2 / expected[there > 0]).sum() < limit


@pytest.mark.parametrize("method", METHODS)
def test_the_expected_gradient_is_that_of_random_sampling(method: Method) -> None:
    """Least squares y = w x with targets that depend on length, so a draw biased by length has another gradient.

    The loss is the mean over the global batch's masked tokens; its gradient at w = 0 is -sum(m x y) / sum(m).
    """
    masked = masked_of(ENTRIES).astype(float)
    features = np.random.default_rng(5).normal(1.0, 0.5, len(ENTRIES))
    contributions = masked * features * (lengths_of(ENTRIES) / 256)
    exact = contributions.sum() / masked.sum()
    gradients = [contributions[plan.dealt.ids_S].sum() / masked[plan.dealt.ids_S].sum() for plan in first_plans(method)]
    # the mean of 100 independent steps, within 4 of its standard errors, about 2 % of the gradient
    assert abs(np.mean(gradients) - exact) < 4 * np.std(gradients) / np.sqrt(RUNS)
    assert np.std(gradients) / np.sqrt(RUNS) < 0.03 * exact
