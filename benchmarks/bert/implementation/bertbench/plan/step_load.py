"""Size the forward passes of a step: simulated for the formulas, and planned with the run's own planner for a dry run.

The simulation draws Wikipedia's lengths. A dry run plans its first steps on the dataset's index; if the data doesn't
exist, it draws the same lengths, cut to the model's positions.
"""

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from bertbench.balance.assignment import assign_by_cost
from bertbench.balance.cost import MASKED_SHARE
from bertbench.balance.parts import in_parts, largest_size
from bertbench.balance.plan import STRATIFIED, Planner, Shares, efficiency
from bertbench.balance.random_samples import draw_lengths, predictions
from bertbench.config import System
from bertbench.data.store.columns import Floats, Index, Integers, pack
from bertbench.data.store.dataset import Dataset
from bertbench.loading.sampler import make_planner
from bertbench.model.shape import training_flops

PLANNED_STEPS = 40
"""Steps of a dry run; with 400 steps the mean load efficiency differs by less than 0.005."""
_SIMULATED_STEPS = 20
_SIMULATED_SAMPLES = 1 << 20
_RANKS = 16  # whose parts are looked at to find the largest; all ranks' samples are assigned in the same way
_SEED = 1  # a run draws its own seed; the numbers printed here depend on it in the third digit


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
    def largest_of(cls, parts: Sequence[Integers], longest: int, parts_of_run: int) -> "Microbatch":
        """Return the size of a run's largest part, estimated from the lengths of sequences in some parts.

        It isn't more than if all sequences had `longest` tokens.
        """
        sizes = [cls.of_lengths(part) for part in parts]
        most_tokens = max(len(part) for part in parts) * longest
        tokens = min(largest_size([size.tokens for size in sizes], parts_of_run), most_tokens)
        pairs = min(largest_size([size.pairs for size in sizes], parts_of_run), tokens * longest)
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
    largest: Microbatch
    """The most tokens of any part, and the most pairs of tokens."""
    flops: float
    """The floating-point operations of the whole step."""


def load_of(system: System) -> StepLoad:
    """Simulate the load of a system's parts on Wikipedia's lengths, cut to the model's positions."""
    lengths = np.minimum(draw_lengths(system.global_batch_size, _SEED), system.model.max_positions)
    flops = training_flops(system.model.shape(), lengths, float(predictions(lengths).sum()))
    parts = system.layout.data * system.parts
    mean_tokens, largest = _simulated_parts(system.global_batch_size, parts, system.model.max_positions)
    return StepLoad(mean_tokens, largest, flops)


def largest_part(system: System) -> Microbatch:
    """Simulate the largest part of any rank that holds the whole model, on Wikipedia's lengths."""
    return _largest_of_ranks(
        system.global_batch_size, system.layout.data, system.parts, system.model.max_positions, parts_of_run(system)
    )


def parts_of_run(system: System) -> int:
    """Return how many parts all ranks compute in a run that takes all its steps."""
    return system.max_steps * system.layout.data * system.parts


@cache
def _largest_of_ranks(samples: int, ranks: int, parts: int, longest: int, parts_of_run: int) -> Microbatch:
    """Return the largest part if each rank splits its share in the order in which samples were drawn."""
    parts_of_steps: list[Integers] = []
    for step in range(_SIMULATED_STEPS):
        lengths = np.minimum(draw_lengths(samples, _SEED + step), longest)
        (rank_S,) = assign_by_cost(lengths[None], ranks, np.arange(longest + 1, dtype=np.float64), equal_counts=False)
        for rank in range(min(ranks, _RANKS)):
            parts_of_steps += in_parts(lengths[rank_S == rank], parts)
    return Microbatch.largest_of(parts_of_steps, longest, parts_of_run)


@cache
def _simulated_parts(samples: int, parts: int, longest: int) -> tuple[float, Microbatch]:
    """Return the mean tokens of a part over some steps, and the most tokens and pairs of any part."""
    tokens, pairs = [], []
    for step in range(_SIMULATED_STEPS):
        lengths = np.minimum(draw_lengths(samples, _SEED + step), longest)
        (part_S,) = assign_by_cost(lengths[None], parts, np.arange(longest + 1, dtype=np.float64), equal_counts=False)
        tokens.append(np.bincount(part_S, lengths, parts))
        pairs.append(np.bincount(part_S, np.square(lengths, dtype=np.float64), parts))
    return float(np.mean(tokens)), Microbatch(float(np.max(tokens)), float(np.max(pairs)))


class FirstSteps(NamedTuple):
    """What the plans of the first steps show."""

    source: str
    """The source of the lengths."""
    load_efficiency: float
    """Mean load of all ranks divided by the largest, according to the cost model; the mean over steps."""
    tokens: Integers
    """The number of tokens in the rank's share of each step."""
    largest_part: Microbatch
    """The largest forward and backward pass of any rank, in a run of such steps."""
    strata_shares: Floats | None
    """Samples of each stratum in a rank's batch if they were in proportion to the dataset; None without strata."""
    problems: list[str]


def first_steps(system: System, rank: int, training: Dataset | None) -> FirstSteps:
    """Plan the first steps. Raises ConfigError if they can't be planned."""
    entries, source = index_to_plan(system, training)
    planner = make_planner(system, entries, _SEED)
    data_rank = system.layout.coordinate(rank).data
    efficiencies, shares = [], []
    parts: list[Integers] = []
    problems: list[str] = []
    for step in range(PLANNED_STEPS):
        plan = planner.plan(step)
        if not problems:  # report only the first step that has problems
            problems = _wrong(system, step, plan.assigned)
        efficiencies.append(efficiency(planner.loads(plan)))
        lengths_of_ranks = np.split(planner.lengths(plan.assigned), plan.assigned.bounds_R1[1:-1])
        shares.append(lengths_of_ranks[data_rank])
        for share in lengths_of_ranks[:_RANKS]:
            parts += in_parts(share, system.parts)
    return FirstSteps(
        source=source,
        load_efficiency=float(np.mean(efficiencies)),
        tokens=np.array([share.sum() for share in shares]),
        largest_part=Microbatch.largest_of(parts, system.model.max_positions, parts_of_run(system)),
        strata_shares=_strata_shares(system, planner),
        problems=problems,
    )


def index_to_plan(system: System, training: Dataset | None) -> tuple[Index, str]:
    """Return the index of the training samples, or of drawn lengths if there are none, and its source."""
    if training is None:
        return _wikipedia(system), "Wikipedia's lengths"
    return training.entries_N, str(training.folder)


def _strata_shares(system: System, planner: Planner) -> Floats | None:
    if system.data.balance not in STRATIFIED:
        return None
    sizes = planner.stratum_sizes()
    return system.local_batch * sizes / sizes.sum()


def _wrong(system: System, step: int, shares: Shares) -> list[str]:
    """Return the errors of a plan: samples that were assigned twice, ranks without samples."""
    counts, where = np.diff(shares.bounds_R1), f"data.balance {system.data.balance}, step {step}:"
    problems = []
    different = np.unique(shares.ids_S)
    if len(different) < len(shares.ids_S):
        problems.append(
            f"{where} of {counts.sum():,} assigned samples only {len(different):,} are different; the training set is "
            f"too small for a global batch of {system.global_batch_size:,}; lower data.global_batch_size"
        )
    idle = np.flatnonzero(counts == 0)
    if idle.size:
        problems.append(
            f"{where} {idle.size} ranks get no sample, the first is rank {idle[0]}; raise data.global_batch_size, or "
            "set data.equal_counts"
        )
    return problems


def _wikipedia(system: System) -> Index:
    lengths = np.minimum(
        draw_lengths(max(_SIMULATED_SAMPLES, system.global_batch_size), _SEED), system.model.max_positions
    )
    return pack(lengths, predictions(lengths))
