"""Plan without training: what a rank of a system holds, and which samples each rank gets in a step."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from bertbench.common.errors import ConfigError, DataError
from bertbench.common.paths import data_folder
from bertbench.common.seeding import derive
from bertbench.common.system_faults import exists
from bertbench.common.user_errors import user_errors
from bertbench.config import System
from bertbench.config.unread import check_given
from bertbench.loading.inputs import open_split
from bertbench.loading.sampler import make_planner
from bertbench.plan.dry_run import dry_run
from bertbench.plan.first_steps import index_to_plan

_COMMAND = "plan"


@dataclass(frozen=True)
class RankPlan:
    """What one rank of a system holds, and what would stop its run. Fields are called as in `bertbench plan --json`."""

    system: str
    rank: int
    gpus: int
    """Ranks of the run."""
    global_batch_size: int
    """Samples of a step."""
    parameters: int
    """Of the rank's model, or of its part of one."""
    memory_gb: Mapping[str, float]
    """Bytes / 10^9 by what they hold."""
    memory_gb_per_gpu: float
    """Their sum: the largest moment."""
    memory_capacity_gb: float | None
    """Memory of a GPU by the system file; None for a CPU, and if the file doesn't give it."""
    bytes_per_step: int
    """What the rank hands over to sums of gradients."""
    lengths_from: str
    """The dataset whose lengths were planned with, or that it isn't there."""
    load_efficiency: float
    """Mean load of the ranks over the largest, mean of the first steps."""
    expected_minutes: float | None
    """Forecast time to train; None where nothing is calibrated: for CPUs and other models."""
    problems: tuple[str, ...]
    """What would stop the run, each with its remedy."""


@dataclass(frozen=True)
class StepAssignment:
    """The samples of one step, by data-parallel rank: R ranks."""

    step: int
    """Counted from 1, as in metrics.jsonl."""
    seed: int
    lengths_from: str
    """The dataset, or that it isn't there: then samples are numbers of drawn lengths."""
    samples: tuple[tuple[int, ...], ...]
    """Numbers of each rank's samples in the training split, from 0: [R]."""
    tokens: tuple[int, ...]
    """Tokens of each rank's samples: [R]."""
    loads: tuple[float, ...]
    """Cost of each rank's samples by the system's cost model, over the ranks' mean: [R]."""
    load_efficiency: float
    """Mean load over the largest: the share of the step in which the average rank works."""


@user_errors()
def plan_rank(system: System, rank: int = 0) -> RankPlan:
    """Plan one rank of a system, on any machine: memory, bytes, load and problems, as `bertbench plan`.

    Missing data is a problem in the plan; it is then made with Wikipedia's lengths.

    Raises BertbenchError if there is no such rank, or if no step can be planned.
    """
    check_given(system, _COMMAND)
    planned = dry_run(system, rank)
    return RankPlan(
        system=system.name,
        rank=rank,
        gpus=system.world_size,
        global_batch_size=system.global_batch_size,
        parameters=planned.counted.parameters,
        memory_gb=MappingProxyType(planned.memory_gb),
        memory_gb_per_gpu=planned.memory_gb_per_gpu,
        memory_capacity_gb=planned.capacity_gb,
        bytes_per_step=planned.counted.bytes_per_step,
        lengths_from=planned.steps.source,
        load_efficiency=planned.steps.load_efficiency,
        expected_minutes=planned.forecast.minutes if planned.forecast else None,
        problems=tuple(planned.problems),
    )


@user_errors()
def plan_step(system: System, step: int = 1, seed: int = 1) -> StepAssignment:
    """Assign the samples of one step to ranks, as a run with this seed does.

    Steps count from 1. Without the system's training data, it draws Wikipedia's lengths.

    Raises BertbenchError for a step or a seed that no run has, and for data that doesn't fit the system.
    """
    check_given(system, _COMMAND)
    check_whole_number("step", step, least=1)
    check_whole_number("seed", seed, least=0)
    has_data = exists(data_folder(system.data.path), DataError)
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
        load_efficiency=planner.efficiency(loads_R, step - 1),
    )


def check_whole_number(name: str, number: int, least: int) -> None:
    """Raise ConfigError unless an argument is a whole number of at least `least`."""
    is_whole = isinstance(number, int) and not isinstance(number, bool)
    if not is_whole or number < least:
        raise ConfigError(f"{name}={number!r}: expected a whole number of at least {least}")
