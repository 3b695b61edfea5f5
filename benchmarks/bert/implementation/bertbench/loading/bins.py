"""A few fixed sizes of batches, token budgets: every batch of a run is filled up to one of them.

What is recorded once and replayed, as a CUDA graph is, needs tensors of fixed sizes at fixed places. `filler.py` rounds
up to many sizes, these are few: tokens, masked tokens and sequences all follow from the budget.
Shapes: as in batch.py; N samples of a dataset.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bertbench.common.errors import RunError
from bertbench.config import System
from bertbench.data.store.dataset import Dataset
from bertbench.data.store.index import lengths_of, masked_of
from bertbench.loading.batch import Batch
from bertbench.loading.filler import extended
from bertbench.model.options import SIZE_STEP

# Standard deviations from the mean number of tokens: a random draw leaves the last with a chance of 1 in 700. Balanced
# deals lie at the mean, for which the second of the two in the middle leaves 1/64 for filler.
_DEVIATIONS = (-2.0, -1.0, 0.0, 1.0, 2.0, 3.0)
_ABOVE_MEAN = 1 + 1 / 64


class Bin(NamedTuple):
    """The sizes of one kind of batch."""

    tokens: int
    masked: int
    sequences: int


class Bins:
    """The budgets of parts of `count` samples at most; the largest holds any of them."""

    def __init__(self, lengths_N: NDArray[np.integer], masked_N: NDArray[np.integer], count: int, longest: int) -> None:
        """`longest` is the model's number of positions, at least the largest of the lengths."""
        self.longest = longest
        mean, deviation = count * float(lengths_N.mean()), count**0.5 * float(lengths_N.std())
        most = count * longest
        wanted = [mean + times * deviation for times in _DEVIATIONS] + [_ABOVE_MEAN * mean, most]
        tokens = sorted({_rounded(self._with_filler(min(max(one, count), most))) for one in wanted})
        # samples mask 15 % of their tokens, short ones 1: two more each leave no batch to a larger bin
        share, most_masked = float(masked_N.sum() / lengths_N.sum()), count * int(masked_N.max())
        masked = [min(share * one + 2 * count, most_masked) for one in tokens[:-1]] + [most_masked]
        self.all = tuple(
            Bin(one, _rounded(read), count + self._filler(one)) for one, read in zip(tokens, masked, strict=True)
        )
        """From the smallest to the largest."""

    def fill(self, batch: Batch) -> Batch:
        """Return the batch, still in main memory, at the size of the smallest bin that holds it.

        Raises RunError if none does: its samples are longer, or more, than those that the bins were made for.
        """
        for one in self.all:
            if self.holds(one, batch):
                return fill_to(batch, one)
        (tokens, masked, sequences), largest = size_of(batch), self.all[-1]
        raise RunError(
            f"a batch of {sequences:,} sequences, {tokens:,} tokens and {masked:,} masked tokens is larger than the "
            f"largest that was recorded, {largest.tokens:,} tokens and {largest.masked:,} masked ones; set "
            "compute.compile to default"
        )

    def holds(self, size: Bin, batch: Batch) -> bool:
        """Return whether a batch and what fills it up fit into a bin."""
        filler = size.sequences - len(batch.next_sentence_S)
        enough = len(batch.tokens_T) + filler <= size.tokens and len(batch.masked_at_M) <= size.masked
        return enough and filler >= self._filler(size.tokens)

    def _with_filler(self, tokens: float) -> float:
        """Return a budget that holds `tokens` tokens and one of each filler sequence."""
        return tokens + -(-tokens // (self.longest - 1)) + 1

    def _filler(self, tokens: int) -> int:
        """Return how many sequences can hold `tokens` tokens if all of them are filler."""
        return -(-tokens // self.longest)


def fill_to(batch: Batch, size: Bin) -> Batch:
    """Return a batch that has exactly these sizes, with filler that no loss reads.

    Filler sequences have a token each at least, so the heads find each one's first token; the masked-token head reads
    the last token again and again.
    """
    count = size.sequences - len(batch.next_sentence_S)
    least, more = divmod(size.tokens - len(batch.tokens_T), count)
    lengths_F = np.repeat((least + 1, least), (more, count - more))
    return extended(batch, lengths_F, size.masked - len(batch.masked_at_M))


def size_of(batch: Batch) -> Bin:
    """Return the sizes of a batch."""
    return Bin(len(batch.tokens_T), len(batch.masked_at_M), len(batch.next_sentence_S))


def _rounded(size: float) -> int:
    return -(-int(np.ceil(size)) // SIZE_STEP) * SIZE_STEP


def make_bins(system: System, training: Dataset) -> Bins:
    """Return the few batch sizes for which a run's steps are recorded."""
    count = system.samples_per_pass
    return Bins(lengths_of(training.entries_N), masked_of(training.entries_N), count, system.model.max_positions)
