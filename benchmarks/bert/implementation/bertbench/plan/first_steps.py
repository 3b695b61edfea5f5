"""The first steps of a run as one rank will see them: the planner that trains, on the dataset's index.

Without the data, Wikipedia's lengths replace it, cut to the model's positions.
"""

from typing import NamedTuple

import numpy as np

from bertbench.balance.plan import Shares, efficiency
from bertbench.balance.random_samples import draw_lengths, predictions
from bertbench.config import System
from bertbench.data.store.columns import Index, Integers, pack
from bertbench.data.store.dataset import Dataset
from bertbench.loading.sampler import make_planner

STEPS = 40  # the mean load efficiency moves by less than 0.005 from 40 to 400
_SEED = 1  # a run draws its own: what is printed here depends on it in the third digit
_SIMULATED_SAMPLES = 1 << 20


class Steps(NamedTuple):
    """What the plans of the first steps say."""

    source: str
    """Where the lengths come from."""
    load_efficiency: float
    """Mean over largest load of all ranks, by the cost model; mean of the steps."""
    tokens: Integers
    """Tokens of the rank's share, by step."""
    longest_part: Integers
    """Lengths of the sequences of the rank's largest forward and backward pass."""
    problems: list[str]


def first_steps(system: System, rank: int, training: Dataset | None) -> Steps:
    """Plan the first steps; raises ConfigError if that is impossible."""
    if training is None:
        entries, source = _wikipedia(system), "Wikipedia's lengths"
    else:
        entries, source = training.entries_N, str(training.folder)
    planner, place = make_planner(system, entries, _SEED), system.layout.coordinate(rank).data
    loads, shares = [], []
    problems: list[str] = []
    for step in range(STEPS):
        plan = planner.plan(step)
        problems = problems or _wrong(system, step, plan.assigned)
        loads.append(efficiency(planner.loads(plan)))
        shares.append(
            planner.lengths(plan.assigned)[plan.assigned.bounds_R1[place] : plan.assigned.bounds_R1[place + 1]]
        )
    largest = max(
        (piece for share in shares for piece in np.array_split(share, min(system.parts, len(share)) or 1)), key=np.sum
    )
    return Steps(source, float(np.mean(loads)), np.array([share.sum() for share in shares]), largest, problems)


def _wrong(system: System, step: int, dealt: Shares) -> list[str]:
    """Return a plan's errors: a sample dealt twice, a rank without work."""
    counts, where = np.diff(dealt.bounds_R1), f"data.balance {system.data.balance}, step {step}:"
    problems = []
    if len(different := np.unique(dealt.ids_S)) < len(dealt.ids_S):
        problems.append(
            f"{where} {counts.sum():,} samples are dealt, {len(different):,} different ones; the training "
            f"set is too small for a global batch of {system.global_batch_size:,}, lower data.global_batch_size"
        )
    if (idle := np.flatnonzero(counts == 0)).size:
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
