"""Make batches of Wikipedia's lengths: each like the whole distribution, or grouped by length as in transformers."""

import numpy as np

from bertbench.balance.random_samples import length_shares, samples_of_lengths
from bertbench.data.store.columns import Columns

_GROUPED_BATCHES = 50  # transformers sorts this many batches together


def wikipedia_batches(batch: int, count: int, seed: int) -> list[Columns]:
    """Return `count` batches; sequence i of each is drawn from the i-th of `batch` quantiles of Wikipedia's lengths."""
    cumulative, random = np.cumsum(length_shares()), np.random.default_rng(seed)
    batches = []
    for number in range(count):
        places = (np.arange(batch) + random.random(batch)) / batch
        lengths = np.searchsorted(cumulative, places * cumulative[-1]) + 1
        batches.append(samples_of_lengths(lengths[::-1], seed + number))
    return batches


def grouped_batches(batch: int, count: int, seed: int) -> list[Columns]:
    """Return `count` batches from short to long, as transformers' group_by_length sorts 50 batches by length."""
    many = np.concatenate([content.lengths for content in wikipedia_batches(batch, _GROUPED_BATCHES, seed)])
    sorted_batches = np.sort(many).reshape(_GROUPED_BATCHES, batch)
    places = ((np.arange(count) + 0.5) * _GROUPED_BATCHES / count).astype(int)
    return [samples_of_lengths(sorted_batches[place][::-1], seed + int(place)) for place in places]
