"""Plan without training: what one rank of a system holds, and which samples each rank gets in a step."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from bertbench.balance.plan import efficiency
from bertbench.common.errors import ConfigError, DataError
from bertbench.common.paths import data_folder
from bertbench.common.reads import Reads
from bertbench.common.seeding import derive
from bertbench.common.system_faults import exists
from bertbench.common.user_errors import user_errors
from bertbench.config import System
from bertbench.config.given import check_given
from bertbench.loading.inputs import open_split
from bertbench.loading.sampler import make_planner
from bertbench.plan.dry_run import dry_run
from bertbench.plan.step_load import index_to_plan

_PLAN = Reads("plan")  # it takes all settings of a run


@dataclass(frozen=True)
class RankPlan:
    """What one rank of a system holds, and what would stop its run. Fields are named as in `bertbench plan --json`."""

    system: str
    rank: int
    gpus: int
    """The number of ranks in the run."""
    global_batch_size: int
    """The number of samples in a step."""
    parameters: int
    """The parameters of the rank's model, or of its part of the model."""
    memory_gb: Mapping[str, float]
    """Bytes / 10^9 by what they hold."""
    memory_gb_per_gpu: float
    """The sum of `memory_gb`, at the time when most memory is in use."""
    memory_capacity_gb: float | None
    """The memory of a GPU according to the system file; None for a CPU, and if the file doesn't state it."""
    bytes_per_step: int
    """The bytes of gradients that the rank sums with other ranks in a step."""
    lengths_from: str
    """The dataset whose lengths were used, or a note that it doesn't exist."""
    load_efficiency: float
    """The mean load of the ranks divided by the largest; the mean over the first steps."""
    expected_minutes: float | None
    """The time to train after published results; None if none has this model and accelerator."""
    problems: tuple[str, ...]
    """The problems that would stop the run, each with its remedy."""


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


@user_errors()
def plan_rank(system: System, rank: int = 0) -> RankPlan:
    """Plan one rank of a system on any machine: memory, bytes, load and problems, like `bertbench plan`.

    If data is missing, the plan lists that as a problem and uses Wikipedia's lengths.

    Raises BertbenchError if there is no such rank, or if no step can be planned.
    """
    check_given(system, _PLAN)
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
        expected_minutes=planned.expected_minutes,
        problems=tuple(planned.problems),
    )


@user_errors()
def plan_step(system: System, step: int = 1, seed: int = 1) -> StepAssignment:
    """Assign the samples of one step to ranks, as in a run with this seed.

    Steps are counted from 1. If the system's training data is missing, lengths are drawn from Wikipedia's distribution.

    Raises BertbenchError for a step or a seed that no run can have, and for data that doesn't fit the system.
    """
    check_given(system, _PLAN)
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
        load_efficiency=efficiency(loads_R),
    )


def check_whole_number(name: str, number: int, least: int) -> None:
    """Raise ConfigError unless the argument `name` is a whole number of at least `least`."""
    is_whole = isinstance(number, int) and not isinstance(number, bool)
    if not is_whole or number < least:
        raise ConfigError(f"{name}={number!r}: expected a whole number of at least {least}")
