"""Plan steps with the run's own planner: the first ones for a dry run, or one step with the samples of each rank.

Lengths are those of the training data's index. If the data doesn't exist, they are drawn from Wikipedia's, cut to the
model's positions. Shapes: R data-parallel ranks.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bertbench.balance.plan import STRATIFIED, Planner, Shares, efficiency
from bertbench.balance.random_samples import draw_lengths, predictions
from bertbench.common.errors import DataError, check_whole_number
from bertbench.common.paths import data_path
from bertbench.common.reads import Reads
from bertbench.common.seeding import derive
from bertbench.common.system_faults import exists
from bertbench.config import System
from bertbench.config.given import check_given
from bertbench.data.store.columns import Floats, Index, Integers, pack
from bertbench.data.store.dataset import Dataset
from bertbench.loading.inputs import open_split
from bertbench.loading.sampler import make_planner
from bertbench.plan.step_load import PLAN_SEED, RANKS_LOOKED_AT, Microbatch, in_parts, parts_of_run

PLAN = Reads("plan")  # it takes all settings of a run
PLANNED_STEPS = 40
"""Steps of a dry run; with 400 steps the mean load efficiency differs by less than 0.005."""
_FEWEST_DRAWN = 1 << 20


class FirstSteps(NamedTuple):
    """What the plans of the first steps show."""

    source: str
    """The source of the lengths."""
    load_efficiency: float
    """Mean load of all ranks divided by the largest, according to the cost model; the mean over steps."""
    tokens: Integers
    """The number of tokens in the rank's share of each step."""
    largest_part_in_run: Microbatch
    """The largest forward and backward pass of any rank, in a run of such steps."""
    strata_shares: Floats | None
    """Samples of each stratum in a rank's batch if they were in proportion to the dataset; None without strata."""
    problems: list[str]


def first_steps(system: System, rank: int, training: Dataset | None) -> FirstSteps:
    """Plan the first steps. Raises ConfigError if they can't be planned."""
    entries, source = index_to_plan(system, training)
    planner = make_planner(system, entries, PLAN_SEED)
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
        for share in lengths_of_ranks[:RANKS_LOOKED_AT]:
            parts += in_parts(share, system.parts)
    return FirstSteps(
        source=source,
        load_efficiency=float(np.mean(efficiencies)),
        tokens=np.array([share.sum() for share in shares]),
        largest_part_in_run=Microbatch.largest_in_run(parts, system.model.max_positions, parts_of_run(system)),
        strata_shares=_strata_shares(system, planner),
        problems=problems,
    )


@dataclass(frozen=True)
class StepAssignment:
    """The samples of one step, for each of R data-parallel ranks."""

    step: int
    """The number of the step, counted from 1 as in metrics.jsonl."""
    seed: int
    lengths_from: str
    """The dataset, or a note that it doesn't exist; samples are then indices of randomly drawn lengths."""
    samples: tuple[tuple[int, ...], ...]
    """The indices of each rank's samples in the training split, counted from 0: [R]."""
    tokens: tuple[int, ...]
    """The number of tokens in each rank's samples: [R]."""
    loads: tuple[float, ...]
    """The cost of each rank's samples by the system's cost model, divided by the mean of all ranks: [R]."""
    load_efficiency: float
    """The mean load divided by the largest: the share of the step in which an average rank works."""


def plan_step(system: System, step: int = 1, seed: int = 1) -> StepAssignment:
    """Assign the samples of one step to ranks, as in a run with this seed.

    Steps are counted from 1. If the system's training data is missing, lengths are drawn from Wikipedia's distribution.

    Raises ConfigError for a step or a seed that no run can have, and DataError for data that doesn't fit the system.
    """
    check_given(system, PLAN)
    check_whole_number("step", step, least=1)
    check_whole_number("seed", seed, least=0)
    has_data = exists(data_path(system.data.path), DataError)
    entries, source = index_to_plan(system, open_split(system, "train") if has_data else None)
    planner = make_planner(system, entries, derive(seed, "data"))
    plan = planner.plan(step - 1)
    shares = plan.assigned
    loads_R = planner.loads(plan)
    return StepAssignment(
        step=step,
        seed=seed,
        lengths_from=source,
        samples=tuple(tuple(shares.of(rank).tolist()) for rank in range(planner.ranks)),
        tokens=tuple(int(tokens) for tokens in shares.sums(planner.lengths(shares))),
        loads=tuple((loads_R / loads_R.mean()).tolist()),
        load_efficiency=efficiency(loads_R),
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
        draw_lengths(max(_FEWEST_DRAWN, system.global_batch_size), PLAN_SEED), system.model.max_positions
    )
    return pack(lengths, predictions(lengths))
