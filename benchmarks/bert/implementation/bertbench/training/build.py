"""Build the parts of a run before its clock starts: arithmetic, data, sampler, trainer, evaluator, snapshots."""

import sys
from typing import TYPE_CHECKING, NamedTuple

from mlperf_logging.mllog import constants

from bertbench.balance.plan import EXCHANGING, Planner
from bertbench.balance.speeds import Speeds
from bertbench.checkpoint.snapshots import Snapshots
from bertbench.common.phases import PhaseClock
from bertbench.common.seeding import derive
from bertbench.config import System
from bertbench.data.store.dataset import Dataset
from bertbench.data.store.index import Index, lengths_of, masked_of
from bertbench.distributed.startup import Startup
from bertbench.distributed.world import World
from bertbench.loading.bins import Bins
from bertbench.loading.exchange import Exchange
from bertbench.loading.loader import Loader
from bertbench.loading.options import OnBadSample
from bertbench.loading.rank_speeds import RebalancingLoader, of_all_ranks
from bertbench.loading.sample_check import SampleCheck
from bertbench.loading.sampler import Sampler
from bertbench.machine.arithmetic import Arithmetic, choose_arithmetic
from bertbench.machine.caches import clear_caches, cleared_by_launcher
from bertbench.results.files import ResultFiles
from bertbench.results.mlperf_log import MlperfLog
from bertbench.results.profiling import Profiler
from bertbench.results.submission import log_submission, log_weights
from bertbench.training.evaluate import Evaluator
from bertbench.training.inputs import check_start, open_data
from bertbench.training.self_check import check
from bertbench.training.trainer import Trainer
from bertbench.training.whole_trainer import WholeTrainer
from bertbench.weights.names import pieces

if TYPE_CHECKING:
    from bertbench.checkpoint.resumption import Resumption


class Options(NamedTuple):
    """Options that make a run differ from a new one that ends at its target."""

    resumption: "Resumption | None" = None
    """The snapshot to resume from; the run's files then belong to the run that wrote it."""
    on_bad_sample: OnBadSample = "fail"
    startup: Startup | None = None
    """Start-up marks so far."""
    profiler: Profiler | None = None
    not_a_result: str | None = None
    """The log's word for a run that can't be a result, such as smoke; such a run never succeeds."""


NEW = Options()


def build(
    system: System,
    world: World,
    seed: int,
    files: ResultFiles | None,
    options: Options,
    startup: Startup,
    log: MlperfLog,
    phases: PhaseClock,
) -> tuple[Arithmetic, Trainer, Evaluator, Snapshots, Loader | RebalancingLoader]:
    """Build this rank's parts of a run, warmed up or restored, and log the run's description. Collective.

    `phases` times its steps. The loader reads no sample before its first step, because reading belongs on the clock.
    Raises the errors of `open_data`, `check_start`, of the trainers and of snapshots.
    """
    resumption = options.resumption
    arithmetic = choose_arithmetic(system, world, files.arithmetic if files and resumption else None)
    if resumption is None:  # a resumed run keeps what its first attempt found
        arithmetic = check(system, world, arithmetic)
    computed = arithmetic.applied(system)
    if files:
        files.describe_arithmetic(arithmetic.record())
    if resumption is None:
        _log_start(log, computed, world, seed)
    startup.mark("caches")
    training, evaluation = open_data(system)
    startup.mark("data")
    bins, speeds = make_bins(computed, training), make_speeds(system)
    sampler = make_sampler(system, training, seed, speeds)
    trainer = make_trainer(computed, world, seed, sampler, startup, arithmetic, bins)
    if speeds and isinstance(trainer, WholeTrainer) and system.launch.rank_speeds == "auto":
        speeds.change(0, of_all_ranks(world, trainer.passes_per_s))
        if world.leads:
            print(f"rank speeds: {speeds.text()}", file=sys.stderr)
    check_samples = SampleCheck.of(training, options.on_bad_sample, world.rank)
    exchange, rank = make_exchange(system, sampler, world), system.layout.coordinate(world.rank).data
    loader = Loader(sampler, rank, world.device, exchange, check_samples, system.fills_batches, startup, bins)
    every = system.launch.rebalance_every_steps
    batches = RebalancingLoader(loader, every, speeds, world, phases) if speeds and every else loader
    snapshots = Snapshots(system, world, seed, files, speeds)
    if files:
        files.describe_communication(trainer.communication())
    if resumption and resumption.meta.step:
        snapshots.load(trainer, resumption.path, resumption.meta)
    return arithmetic, trainer, make_evaluator(system, evaluation, trainer, world), snapshots, batches


def _log_start(log: MlperfLog, system: System, world: World, seed: int) -> None:
    for cleared in _caches_cleared(system, world):
        log.point(constants.CACHE_CLEAR, cleared)
    log_submission(log, system, seed)
    if system.model.checkpoint is not None:
        check_start(system)
        log_weights(log, (piece.tensorflow for piece in pieces(system.model.shape())))


def make_sampler(system: System, training: Dataset, seed: int, speeds: Speeds | None = None) -> Sampler:
    """Return the sampler that chooses every data-parallel rank's samples, by the system's balance method."""
    planner = make_planner(system, training.entries_N, derive(seed, "data"), speeds)
    if system.parallel.pipeline > 1:
        from bertbench.parallel.microbatches import TokenSampler  # noqa: PLC0415 - of split models only

        return TokenSampler(training, planner, system.parts, system.loss.normalize)
    return Sampler(training, planner, system.parts, system.loss.normalize)


def make_speeds(system: System) -> Speeds | None:
    """Return the speeds in a system file, equal ones until they are measured; None if ranks count as equal."""
    given = system.launch.rank_speeds
    if given is None:
        return None
    return Speeds((1.0,) * system.world_size if given == "auto" else given)


def make_planner(system: System, entries_N: Index, seed: int, speeds: Speeds | None = None) -> Planner:
    """Return the planner that deals samples to data-parallel ranks; `speeds` defaults to the system's list."""
    speeds = speeds or make_speeds(system)
    # configuration refuses methods that use nodes if ranks share the model
    nodes = system.hardware.number_of_nodes if system.layout.data == system.world_size else 1
    return Planner(
        entries_N, system.balance, system.global_batch_size, seed, nodes, system.layout.data // nodes, speeds
    )


def make_trainer(
    system: System,
    world: World,
    seed: int,
    sampler: Sampler,
    startup: Startup | None = None,
    arithmetic: Arithmetic | None = None,
    bins: Bins | None = None,
) -> Trainer:
    """Return the trainer of this rank's model, or of its part of one; with `bins`, it replays recorded steps."""
    products = dict(arithmetic.products) if arithmetic else {}
    if bins is not None:
        from bertbench.training.graph_trainer import GraphTrainer  # noqa: PLC0415 - of few runs, as the next

        return GraphTrainer(system, world, seed, bins, startup, products)
    if not system.parallel.splits:
        return WholeTrainer(system, world, seed, startup, products)
    from bertbench.parallel.microbatches import TokenSampler  # noqa: PLC0415
    from bertbench.training.layout_trainer import LayoutTrainer  # noqa: PLC0415

    tokens = 0
    if isinstance(sampler, TokenSampler):
        tokens = sampler.budget(range(system.max_steps), system.layout.coordinate(world.rank).data)
    return LayoutTrainer(system, world, seed, tokens, startup)


def make_bins(system: System, training: Dataset) -> Bins | None:
    """Return the few batch sizes for which steps are recorded; None if they aren't."""
    if system.compute.compile != "graphs":
        return None
    count = system.local_batch // system.data.gradient_accumulation_steps
    return Bins(lengths_of(training.entries_N), masked_of(training.entries_N), count, system.model.max_positions)


def make_evaluator(system: System, evaluation: Dataset, trainer: Trainer, world: World) -> Evaluator:
    """Return the evaluator of this rank's evaluation samples."""
    if system.parallel.splits:
        from bertbench.training.layout_evaluate import LayoutEvaluator  # noqa: PLC0415 - of split models only

        return LayoutEvaluator(evaluation, system.evaluation.batch_size, trainer)
    return Evaluator(evaluation, system.evaluation.batch_size, world, system.fills_batches)


def make_exchange(system: System, sampler: Sampler, world: World) -> Exchange | None:
    """Return the exchange of drawn samples, if the balance method has one."""
    if system.data.balance not in EXCHANGING:
        return None
    return Exchange(sampler.dataset, world.neighbours(world.size // sampler.planner.groups))


def _caches_cleared(system: System, world: World) -> list[bool]:
    """Return whether each node's page cache was dropped, by its launcher or now by its first rank."""
    cleared = None
    if world.ranks.local_rank == 0:
        cleared = cleared_by_launcher() or (system.launch.clear_caches and clear_caches())
    return [answer for answer in world.from_all(cleared) if answer is not None]
