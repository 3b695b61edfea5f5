"""Size the forward passes of a step, for the formulas of `plan`: a simulation that draws Wikipedia's lengths.

It plans nothing with the run's data and its planner; planned_steps.py does.

A part is what a rank computes in one forward pass. "Largest" is said of three sets of parts:
- `StepLoad.largest_simulated_part` is the largest of the parts that this simulation makes;
- `largest_part_in_run` is the largest of all parts in a run, which has many more than are simulated;
- `likely_maximum` is how the second is estimated from the first: for one measure, such as tokens.
Shapes: S samples of a step, P parts taken from several steps.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from bertbench.balance.assignment import assign_by_cost
from bertbench.balance.cost import MASKED_SHARE
from bertbench.balance.random_samples import draw_lengths, predictions
from bertbench.config import System
from bertbench.data.store.columns import Integers
from bertbench.model.shape import training_flops

_SIMULATED_STEPS = 20
RANKS_LOOKED_AT = 16
"""The ranks whose parts are looked at to estimate a run's largest; all ranks' samples are assigned in the same way."""
PLAN_SEED = 1
"""The seed of a plan. A run draws its own; the printed numbers depend on it in the third digit."""


class Microbatch(NamedTuple):
    """The size of one forward pass."""

    tokens: float
    pairs: float
    """The number of pairs of tokens in the same sequence: the sum of squared lengths."""

    @classmethod
    def of_lengths(cls, lengths: Integers) -> "Microbatch":
        """Return the size of sequences of these lengths."""
        return cls(float(lengths.sum()), float(np.square(lengths, dtype=np.float64).sum()))

    @classmethod
    def largest_in_run(cls, some_parts: Sequence[Integers], longest: int, parts_of_run: int) -> "Microbatch":
        """Estimate the size of a run's largest part from the lengths of sequences in some of its parts.

        It isn't more than if all sequences had `longest` tokens.
        """
        sizes = [cls.of_lengths(part) for part in some_parts]
        most_tokens = max(len(part) for part in some_parts) * longest
        tokens = min(likely_maximum([size.tokens for size in sizes], parts_of_run), most_tokens)
        pairs = min(likely_maximum([size.pairs for size in sizes], parts_of_run), tokens * longest)
        return cls(tokens, pairs)

    @property
    def masked(self) -> float:
        """Return the number of masked tokens, at Wikipedia's share."""
        return MASKED_SHARE * self.tokens

    @property
    def mean_length(self) -> float:
        """Return the mean, over tokens, of the length of the token's sequence."""
        return self.pairs / self.tokens

    @property
    def sequences(self) -> float:
        """Return the number of sequences, if all had the mean length."""
        return self.tokens / self.mean_length


class StepLoad(NamedTuple):
    """The parts into which a global batch is split."""

    mean_tokens: float
    """Mean tokens of a part."""
    largest_simulated_part: Microbatch
    """The most tokens of any simulated part, and the most pairs of tokens."""
    flops: float
    """The floating-point operations of the whole step."""


def load_of(system: System) -> StepLoad:
    """Simulate the load of a system's parts on Wikipedia's lengths, cut to the model's positions."""
    lengths = np.minimum(draw_lengths(system.global_batch_size, PLAN_SEED), system.model.max_positions)
    flops = training_flops(system.model.shape(), lengths, float(predictions(lengths).sum()))
    parts = system.layout.data * system.parts
    mean_tokens, largest_part = _simulated_parts(system.global_batch_size, parts, system.model.max_positions)
    return StepLoad(mean_tokens, largest_part, flops)


def largest_part_in_run(system: System) -> Microbatch:
    """Estimate the largest part of any rank in a run with whole models, from simulated steps on Wikipedia's lengths."""
    return _largest_part_in_run(
        system.global_batch_size, system.layout.data, system.parts, system.model.max_positions, parts_of_run(system)
    )


def parts_of_run(system: System) -> int:
    """Return how many parts all ranks compute in a run that takes all its steps."""
    return system.max_steps * system.layout.data * system.parts


@cache
def _largest_part_in_run(samples: int, ranks: int, parts: int, longest: int, parts_of_run: int) -> Microbatch:
    """Estimate the largest part if each rank splits its share in the order in which samples were drawn."""
    parts_of_steps: list[Integers] = []
    for lengths_S, rank_S in _simulated_steps(samples, ranks, longest):
        for rank in range(min(ranks, RANKS_LOOKED_AT)):
            parts_of_steps += in_parts(lengths_S[rank_S == rank], parts)
    return Microbatch.largest_in_run(parts_of_steps, longest, parts_of_run)


@cache
def _simulated_parts(samples: int, parts: int, longest: int) -> tuple[float, Microbatch]:
    """Return the mean tokens of a part over some steps, and the most tokens and pairs of any part.

    A split model's parts are balanced by their tokens, as ranks are.
    """
    tokens, pairs = [], []
    for lengths_S, part_S in _simulated_steps(samples, parts, longest):
        tokens.append(np.bincount(part_S, lengths_S, parts))
        pairs.append(np.bincount(part_S, np.square(lengths_S, dtype=np.float64), parts))
    return float(np.mean(tokens)), Microbatch(float(np.max(tokens)), float(np.max(pairs)))


def _simulated_steps(samples: int, shares: int, longest: int) -> Iterator[tuple[Integers, Integers]]:
    """Yield the length of each sample of a step, and the number of the share to which it is assigned by tokens."""
    tokens_of_length = np.arange(longest + 1, dtype=np.float64)
    for step in range(_SIMULATED_STEPS):
        lengths_S = np.minimum(draw_lengths(samples, PLAN_SEED + step), longest)
        (share_S,) = assign_by_cost(lengths_S[None], shares, tokens_of_length, equal_counts=False)
        yield lengths_S, share_S


def in_parts(share: Integers, parts: int) -> list[Integers]:
    """Split a rank's share of a step as gradient accumulation does. No part is empty, unless the share itself is."""
    return np.array_split(share, max(1, min(parts, len(share))))


def likely_maximum(sizes: Sequence[float], parts: int) -> float:
    """Estimate the largest of `parts` sizes from some of them.

    If sizes are normally distributed, one in that many is larger than the estimate. It is 4.0 standard deviations above
    the mean for 30,000 parts, 4.4 for 200,000.
    """
    sizes_P = np.array(sizes, np.float64)
    deviations = NormalDist().inv_cdf(1 - 1 / max(parts, 2))
    return float(max(sizes_P.mean() + deviations * sizes_P.std(), sizes_P.max()))
