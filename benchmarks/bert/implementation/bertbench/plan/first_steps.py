"""Plan the first steps of a run for one rank, with the planner that training uses, on the dataset's index.

If the data doesn't exist, lengths are drawn from Wikipedia's distribution and cut to the model's positions.
"""

from typing import NamedTuple

import numpy as np

from bertbench.balance.parts import in_parts
from bertbench.balance.plan import STRATIFIED, Planner, Shares, efficiency
from bertbench.balance.random_samples import draw_lengths, predictions
from bertbench.config import System
from bertbench.data.store.columns import Floats, Index, Integers, pack
from bertbench.data.store.dataset import Dataset
from bertbench.loading.sampler import make_planner
from bertbench.plan.step_load import RANKS, Microbatch, parts_of_run

STEPS = 40  # with 400 steps the mean load efficiency differs by less than 0.005
_SEED = 1  # a run draws its own seed; the numbers printed here depend on it in the third digit
_SIMULATED_SAMPLES = 1 << 20


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
    for step in range(STEPS):
        plan = planner.plan(step)
        if not problems:  # report only the first step that has problems
            problems = _wrong(system, step, plan.assigned)
        efficiencies.append(efficiency(planner.loads(plan)))
        lengths_of_ranks = np.split(planner.lengths(plan.assigned), plan.assigned.bounds_R1[1:-1])
        shares.append(lengths_of_ranks[data_rank])
        for share in lengths_of_ranks[:RANKS]:
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
