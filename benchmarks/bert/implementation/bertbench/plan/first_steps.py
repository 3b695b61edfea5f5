"""The first steps of a run as one rank will see them: the planner that trains, on the dataset's index.

Without the data, Wikipedia's lengths replace it, cut to the model's positions.
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
from bertbench.plan.step_load import RANKS, Microbatch

STEPS = 40  # the mean load efficiency moves by less than 0.005 from 40 to 400
_SEED = 1  # a run draws its own: what is printed here depends on it in the third digit
_SIMULATED_SAMPLES = 1 << 20


class FirstSteps(NamedTuple):
    """What the plans of the first steps say."""

    source: str
    """Where the lengths come from."""
    load_efficiency: float
    """Mean over largest load of all ranks, by the cost model; mean of the steps."""
    tokens: Integers
    """Tokens of the rank's share, by step."""
    largest_part: Microbatch
    """The largest forward and backward pass of any rank in a run of such steps."""
    strata_shares: Floats | None
    """Samples of each stratum that a rank's batch would hold by their shares of the dataset; None without strata."""
    problems: list[str]


def first_steps(system: System, rank: int, training: Dataset | None) -> FirstSteps:
    """Plan the first steps; raises ConfigError if that is impossible."""
    entries, source = index_to_plan(system, training)
    planner = make_planner(system, entries, _SEED)
    data_rank = system.layout.coordinate(rank).data
    efficiencies, shares = [], []
    parts: list[Integers] = []
    problems: list[str] = []
    for step in range(STEPS):
        plan = planner.plan(step)
        if not problems:  # those of the first step that has any
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
        largest_part=Microbatch.largest_of(parts, system.model.max_positions),
        strata_shares=_strata_shares(system, planner),
        problems=problems,
    )


def index_to_plan(system: System, training: Dataset | None) -> tuple[Index, str]:
    """Return the index of the training samples, or of drawn lengths without them, and where it comes from."""
    if training is None:
        return _wikipedia(system), "Wikipedia's lengths"
    return training.entries_N, str(training.folder)


def _strata_shares(system: System, planner: Planner) -> Floats | None:
    if system.data.balance not in STRATIFIED:
        return None
    sizes = planner.stratum_sizes()
    return system.local_batch * sizes / sizes.sum()


def _wrong(system: System, step: int, shares: Shares) -> list[str]:
    """Return a plan's errors: a sample that two ranks get, a rank without work."""
    counts, where = np.diff(shares.bounds_R1), f"data.balance {system.data.balance}, step {step}:"
    problems = []
    different = np.unique(shares.ids_S)
    if len(different) < len(shares.ids_S):
        problems.append(
            f"{where} {counts.sum():,} samples are assigned, {len(different):,} different ones; the training "
            f"set is too small for a global batch of {system.global_batch_size:,}, lower data.global_batch_size"
        )
    idle = np.flatnonzero(counts == 0)
    if idle.size:
        problems.append(
            f"{where} {idle.size} ranks get no sample, rank {idle[0]} first; raise data.global_batch_size, or set "
            "data.equal_counts"
        )
    return problems


def _wikipedia(system: System) -> Index:
    lengths = np.minimum(
        draw_lengths(max(_SIMULATED_SAMPLES, system.global_batch_size), _SEED), system.model.max_positions
    )
    return pack(lengths, predictions(lengths))
