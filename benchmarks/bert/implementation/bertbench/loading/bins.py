"""Plan the sizes of batches: a run's bins, which of them a part takes, and the sizes of a warm-up.

A CUDA graph needs tensors of fixed sizes at fixed places. So each part's batch gets filler (filler.py) up to one of a
few sizes, the run's bins. A bin's masked tokens and sequences follow from its budget of tokens. The samples of every
step are known before the run, so the bins are made for all of them: no batch is larger than the largest bin.

Ranks that replay graphs with a collective inside must replay the same graph. Every rank knows the sizes of all ranks'
samples from the index, so every rank takes the bin that holds the largest rank's samples.
Shapes: R ranks, P parts of several steps, L parts of all ranks in one step.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from bertbench.balance.plan import Shares, StepPlan
from bertbench.data.store.columns import Integers, offsets
from bertbench.loading.batch import Batch
from bertbench.loading.filler import BatchSize, filled_to_size, round_size, size_of
from bertbench.loading.sampler import RankStep, Sampler
from bertbench.model.options import SIZE_STEP

# Budgets lie at equal distances between these sizes. On average, filler is an eighth of a standard deviation.
_BUDGETS = 25
_SMALLEST_DEVIATIONS = -2.0  # the smallest budget, in standard deviations from the mean; smaller parts are few
_MORE_MASKED = 2  # more masked tokens per sample than the mean: 15 % of the tokens are masked, but at least one


class Bins:
    """The sizes for which a run records graphs, from the smallest to the largest."""

    def __init__(self, parts: Sequence[BatchSize], longest: int) -> None:
        """Make bins for parts of these sizes, with sequences of at most `longest` tokens; the largest holds all."""
        self.longest = longest
        tokens_P, masked_P, sequences_P = np.array(parts).T
        masked_share = masked_P.sum() / tokens_P.sum()
        sequences = int(sequences_P.max())
        # a part with fewer sequences gets more filler sequences, each with at least one token
        most_tokens = (tokens_P - sequences_P).max() + sequences
        smallest = tokens_P.mean() + _SMALLEST_DEVIATIONS * tokens_P.std()
        budgets = np.linspace(min(smallest, most_tokens), most_tokens, _BUDGETS)
        possible = np.clip(budgets, sequences, sequences * longest)
        rounded = sorted({_rounded(self._budget_for(tokens)) for tokens in possible.tolist()})
        bins = [
            BatchSize(
                tokens=budget,
                masked=_rounded(masked_share * budget + _MORE_MASKED * sequences),
                sequences=sequences + self._most_filler(budget),
            )
            for budget in rounded
        ]
        most_masked = max(bins[-1].masked, _rounded(masked_P.max()))
        bins[-1] = bins[-1]._replace(masked=most_masked)
        self.all = tuple(bins)

    def smallest_for(self, part: BatchSize) -> BatchSize:
        """Return the smallest bin that holds a part of this size and its filler.

        Raises AssertionError if none does: the bins were made for parts among which it wasn't.
        """
        for size in self.all:
            if self.holds(size, part):
                return size
        raise AssertionError(f"no bin holds {part}; the largest is {self.all[-1]}")

    def fill(self, batch: Batch) -> Batch:
        """Fill a batch in main memory up to the smallest bin that holds it."""
        return filled_to_size(batch, self.smallest_for(size_of(batch)))

    def holds(self, size: BatchSize, part: BatchSize) -> bool:
        """Return whether a part and its filler fit into a bin of this size."""
        filler_sequences = size.sequences - part.sequences
        has_room = part.tokens + filler_sequences <= size.tokens and part.masked <= size.masked
        return has_room and filler_sequences >= self._most_filler(size.tokens)

    def _budget_for(self, tokens: float) -> float:
        """Return a budget that holds `tokens` tokens and one of each filler sequence."""
        return tokens + -(-tokens // (self.longest - 1)) + 1

    def _most_filler(self, tokens: int) -> int:
        """Return how many sequences can hold `tokens` tokens if all of them are filler."""
        return -(-tokens // self.longest)


def _rounded(size: float) -> int:
    return -(-int(np.ceil(size)) // SIZE_STEP) * SIZE_STEP


@dataclass(frozen=True)
class BinSampler(Sampler):
    """Plan the bins of a step's parts in addition to its samples."""

    bins: Bins

    @classmethod
    def of(cls, sampler: Sampler, steps: Iterable[int], longest: int) -> Self:
        """Return a sampler with bins for all parts of these steps; the same on all ranks.

        Planning takes 0.2 to 20 ms a step, from 448 to 16,416 samples: 1 to 6 s for a whole run, before its clock
        starts (one core of an AMD EPYC).
        """
        parts: list[BatchSize] = []
        for step in steps:
            plan = sampler.planner.plan(step)
            parts += _earlier_parts(sampler, plan)
            parts.append(largest_last_part(sampler, plan))
        return cls(sampler.dataset, sampler.planner, sampler.parts, sampler.normalize, Bins(parts, longest))

    def step(self, step: int, rank: int) -> RankStep:
        """Return rank `rank`'s share of a step, with the size of each of its parts.

        A step's last part sends gradients, so all ranks give it the same size: the bin that holds the largest rank's.
        Earlier parts send nothing.
        """
        planned = super().step(step, rank)
        *earlier, last = planned.parts
        sized = [replace(part, size=self.bins.smallest_for(self.size_of(part))) for part in earlier]
        sized.append(replace(last, size=self.bins.smallest_for(largest_last_part(self, planned.plan))))
        return replace(planned, parts=sized)


def _earlier_parts(sampler: Sampler, plan: StepPlan) -> list[BatchSize]:
    """Return the sizes of all parts of all ranks but each rank's last."""
    if sampler.parts == 1:
        return []
    assigned = plan.assigned
    ranks = len(assigned.counts())
    sequences: list[int] = []
    last_parts: list[int] = []
    for rank in range(ranks):
        sequences += [len(piece) for piece in sampler.pieces(assigned.of(rank))]
        last_parts.append(len(sequences) - 1)
    sequences_L = np.array(sequences)
    starts_L = np.cumsum(sequences_L) - sequences_L
    tokens_L = np.add.reduceat(sampler.dataset.lengths(assigned.ids_S), starts_L)
    masked_L = np.add.reduceat(sampler.dataset.masked(assigned.ids_S), starts_L)
    sizes_L3 = np.stack((tokens_L, masked_L, sequences_L), axis=1)
    earlier_sizes = np.delete(sizes_L3, last_parts, axis=0)
    return [BatchSize(*size) for size in earlier_sizes.tolist()]


def largest_last_part(sampler: Sampler, plan: StepPlan) -> BatchSize:
    """Return the size with the fewest tokens that holds the last part of every rank.

    Ranks with fewer samples get more filler sequences, each with at least one token. So the size is the largest number
    of samples, plus the largest number of tokens that a rank has beyond one per sample.
    """
    assigned = plan.assigned
    counts_R = assigned.counts()
    last_R = counts_R // np.minimum(sampler.parts, counts_R)  # as in `np.array_split`: earlier parts get the remainder
    tokens_R = _last_sums(sampler.dataset.lengths(assigned.ids_S), assigned, last_R)
    masked_R = _last_sums(sampler.dataset.masked(assigned.ids_S), assigned, last_R)
    sequences = int(last_R.max())
    return BatchSize(int((tokens_R - last_R).max()) + sequences, int(masked_R.max()), sequences)


def _last_sums(values_S: Integers, shares: Shares, last_R: Integers) -> Integers:
    """Return the sum over each rank's last samples, `last_R` of them: [R]."""
    sums_S1 = offsets(values_S)
    stops_R = shares.bounds_R1[1:]
    return sums_S1[stops_R] - sums_S1[stops_R - last_R]


def longest_part(sampler: Sampler, steps: Iterable[int]) -> Integers:
    """Return the lengths of the samples of the part with the most tokens, longest first; the same on all ranks.

    It looks at the rank with the most tokens of each of these steps.
    """
    lengths_of = sampler.dataset.lengths
    longest = np.zeros(0, np.int64)
    for step in steps:
        assigned = sampler.planner.plan(step).assigned
        fullest_rank = int(assigned.sums(lengths_of(assigned.ids_S)).argmax())
        for ids in sampler.pieces(assigned.of(fullest_rank)):
            lengths = lengths_of(ids)
            if lengths.sum() > longest.sum():
                longest = lengths
    return np.sort(longest)[::-1]


def planned_sizes(sampler: Sampler, rank: int, steps: range) -> Iterator[BatchSize]:
    """Yield sizes of a rank's filled batches in these steps, enough for all sizes of products; read no sample."""
    sizes_of_products: set[tuple[str, int]] = set()
    for step in steps:
        for part in sampler.step(step, rank).parts:
            lengths = sampler.dataset.lengths(part.ids)
            masked = int(sampler.dataset.masked(part.ids).sum())
            size = round_size(BatchSize(int(lengths.sum()), masked, len(lengths)), int(lengths.max()))
            products = {("tokens", size.tokens), ("read", size.masked + size.sequences), ("pairs", size.sequences)}
            if size.sequences > 1 and not products <= sizes_of_products:  # `filled_to_size` needs a sequence to fill
                sizes_of_products |= products
                yield size
