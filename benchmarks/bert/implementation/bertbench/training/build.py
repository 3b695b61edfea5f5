"""Build the parts of a run before its clock starts: arithmetic, data, sampler, trainer, evaluator, snapshots."""

from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, NamedTuple

from mlperf_logging.mllog import constants

from bertbench.balance.plan import Planner
from bertbench.checkpoint.snapshots import Snapshots
from bertbench.common.seeding import derive
from bertbench.config import System
from bertbench.data.store.dataset import Dataset
from bertbench.distributed.startup import Startup
from bertbench.distributed.world import World
from bertbench.loading.bins import BinSampler, longest_part, planned_sizes
from bertbench.loading.filler import BatchSize, fill_of
from bertbench.loading.inputs import open_data
from bertbench.loading.loader import Loader, make_exchange
from bertbench.loading.sampler import Sampler, make_planner
from bertbench.machine.caches import clear_caches
from bertbench.machine.choose_arithmetic import RESUMED, Arithmetic, choose_arithmetic
from bertbench.machine.peak_rate import PeakRate, peak_rate
from bertbench.model.linear import Products
from bertbench.model.products import Shape
from bertbench.runs.files import ResultFiles
from bertbench.runs.mlperf_log import MlperfLog
from bertbench.runs.submission import log_submission, log_weights
from bertbench.training.evaluator import Evaluator, LayoutEvaluator
from bertbench.training.self_check import check_fast_paths
from bertbench.training.short_run import Profiler
from bertbench.training.technique import EVERY_STEP, Technique
from bertbench.training.trainer import Trainer
from bertbench.training.verdicts import check_unless_known
from bertbench.training.whole_trainer import WholeTrainer

if TYPE_CHECKING:
    from bertbench.checkpoint.resumption import Resumption


_MEASURED_STEPS = 20  # the warm-up computes the largest part of these steps; planning 16,384 samples takes 3 ms a step
_WARMED_STEPS = 100  # in the demo, these show 13 of the 17 batch sizes of 400 steps, in 0.1 s


class TrainOptions(NamedTuple):
    """Options that make a run differ from a new run that ends at its target."""

    resumption: "Resumption | None" = None
    """The snapshot to resume from; the run's files are then those of the run that wrote it."""
    startup: Startup | None = None
    """The start-up marks so far."""
    profiler: Profiler | None = None
    not_a_result: str | None = None
    """The reason, as the log states it, why a run can't be a result, such as smoke; such a run never succeeds."""
    caches_cleared: bool = False
    """Whether a script has dropped this node's page cache."""
    technique: Technique = EVERY_STEP


NEW_RUN = TrainOptions()


class TrainerOptions(NamedTuple):
    """What a trainer needs besides its system, its ranks, its seed and its sampler."""

    startup: Startup | None = None
    products: dict[Shape, Products] | None = None
    """Libraries of matrix products by layer shape, as in `Arithmetic`."""
    warm_up_sizes: Iterable[BatchSize] = ()
    """Sizes of the run's batches. The warm-up of a whole model runs a pass of each, as far as its time limit allows."""
    graphs_if_faster: bool = False
    """Whether graphs are recorded only if they save time."""
    technique: Technique = EVERY_STEP


DEFAULT_TRAINER = TrainerOptions()


class BuiltRun(NamedTuple):
    """This rank's parts of a run, warmed up or restored."""

    system: System
    """The run's system, with the arithmetic that was chosen for it."""
    arithmetic: Arithmetic
    trainer: Trainer
    evaluator: Evaluator
    snapshots: Snapshots
    loader: Loader
    planner: Planner
    peak: PeakRate
    """The peak of one device, in the number format of the run."""


def build_run(
    system: System,
    world: World,
    seed: int,
    files: ResultFiles | None,
    options: TrainOptions,
    startup: Startup,
    log: MlperfLog,
) -> BuiltRun:
    """Build this rank's parts of a run, warmed up or restored, and log the run's description. Collective.

    The loader reads no sample before the first step, because reading must be timed.
    Raises the errors of `open_data`, `check_start`, of the trainers and of snapshots.
    """
    resumption = options.resumption
    # as the user gave it, with `auto` in it: a resumed run compares it with its own
    configuration = options.technique.configuration(system)
    arithmetic = _choose_arithmetic(system, world, files, resumption)
    asked = system
    system = arithmetic.applied(asked)  # which has no format, mode or kernel `auto`
    if files:
        files.write("arithmetic.json", arithmetic.record())
    if resumption is None:
        _log_start(log, system, world, seed, options)
    peak = peak_rate(system.precision.compute, world)
    if files:
        files.write("peak.json", asdict(peak))
    startup.mark("caches")
    training, evaluation = open_data(system)
    startup.mark("data")
    sampler = make_sampler(system, training, seed, options.technique)
    rank = system.layout.coordinate(world.rank).data
    warm_up_sizes: Iterable[BatchSize] = ()
    records_graphs = system.compute.compile == "graphs"
    if world.device.type == "cpu" and system.fills_batches and not records_graphs:
        first_steps = range(min(system.max_steps, _WARMED_STEPS))
        warm_up_sizes = planned_sizes(sampler, rank, first_steps)
    trainer_options = TrainerOptions(
        startup=startup,
        products=dict(arithmetic.products),
        warm_up_sizes=warm_up_sizes,
        graphs_if_faster=asked.compute.compile == "auto",
        technique=options.technique,
    )
    trainer = make_trainer(system, world, seed, sampler, trainer_options)
    exchange = make_exchange(system, sampler, world)
    loader = Loader(sampler, rank, world.device, exchange, fill_of(system), startup)
    if resumption is None:
        log.point("bertbench_clip", trainer.describe_step().logged_clipping())
    snapshots = Snapshots(system, configuration, world, seed, files, options.technique.takes_snapshots)
    if files:
        files.write("communication.json", asdict(trainer.describe_step()))
    if resumption and resumption.meta.step:
        snapshots.load(trainer, resumption.path, resumption.meta)
    evaluator = make_evaluator(system, evaluation, trainer, world)
    return BuiltRun(
        system=system,
        arithmetic=arithmetic,
        trainer=trainer,
        evaluator=evaluator,
        snapshots=snapshots,
        loader=loader,
        planner=sampler.planner,
        peak=peak,
    )


def _choose_arithmetic(
    system: System, world: World, files: ResultFiles | None, resumption: "Resumption | None"
) -> Arithmetic:
    """Return the arithmetic of a resumed run, which continues bit for bit, or choose one and check its fast paths."""
    keeps = resumption is not None and resumption.keeps_arithmetic(system)
    fastest = choose_arithmetic(system, world, files.arithmetic if files and keeps else None)
    if fastest.source == RESUMED:
        return fastest
    if world.device.type == "cpu":  # a check takes a second or two
        return check_fast_paths(system, world, fastest)
    return check_unless_known(system, world, fastest)


def _log_start(log: MlperfLog, system: System, world: World, seed: int, options: TrainOptions) -> None:
    for cleared in clear_caches(world, system.launch.clear_caches, options.caches_cleared):
        log.point(constants.CACHE_CLEAR, cleared)
    log_submission(log, system, seed, options.technique.name)
    if system.model.checkpoint is not None:
        from bertbench.checkpoint.start import check_start  # noqa: PLC0415
        from bertbench.checkpoint.tensor_names import pieces  # noqa: PLC0415

        check_start(system)
        log_weights(log, (piece.tensorflow for piece in pieces(system.model.shape())))


def make_sampler(system: System, training: Dataset, seed: int, technique: Technique = EVERY_STEP) -> Sampler:
    """Return the sampler that chooses the samples of every data-parallel rank, by the system's `data.balance`.

    A technique can assign them to ranks in another way.
    """
    planner = make_planner(system, training.entries_N, derive(seed, "data"), technique.assign)
    if system.parallel.pipeline > 1:
        from bertbench.parallel.microbatches import TokenSampler  # noqa: PLC0415 - for split models only

        return TokenSampler(training, planner, system.parts, system.loss.normalize)
    sampler = Sampler(training, planner, system.parts, system.loss.normalize)
    if system.compute.compile == "graphs":
        return BinSampler.of(sampler, range(system.max_steps), system.model.max_positions)
    return sampler


def make_trainer(
    system: System, world: World, seed: int, sampler: Sampler, options: TrainerOptions = DEFAULT_TRAINER
) -> Trainer:
    """Return the trainer of this rank's model, or of its part of the model."""
    startup = options.startup
    is_plain = system.compute.compile != "graphs" and not system.parallel.splits
    assert is_plain or options.technique == EVERY_STEP, "techniques are for whole models, whose steps aren't recorded"
    if system.compute.compile == "graphs":
        from bertbench.training.graph_trainer import GraphTrainer  # noqa: PLC0415 - for few runs

        assert isinstance(sampler, BinSampler), "graphs are recorded for the sizes of its bins"
        return GraphTrainer(
            system, world, seed, sampler.bins, startup, options.products, only_if_faster=options.graphs_if_faster
        )
    first_steps = range(min(system.max_steps, _MEASURED_STEPS))
    if not system.parallel.splits:
        return WholeTrainer(
            system,
            world,
            seed,
            startup,
            options.products,
            options.warm_up_sizes,
            warm_up_lengths_S=longest_part(sampler, first_steps),
            technique=options.technique,
        )
    from bertbench.parallel.microbatches import TokenSampler  # noqa: PLC0415
    from bertbench.training.layout_trainer import LayoutTrainer  # noqa: PLC0415

    if isinstance(sampler, TokenSampler):
        rank = system.layout.coordinate(world.rank).data
        tokens = sampler.budget(range(system.max_steps), rank)
        return LayoutTrainer(system, world, seed, tokens, startup)
    lengths_S = longest_part(sampler, first_steps)
    return LayoutTrainer(system, world, seed, 0, startup, warm_up_lengths_S=lengths_S)


def make_evaluator(system: System, evaluation: Dataset, trainer: Trainer, world: World) -> Evaluator:
    """Return the evaluator of this rank's evaluation samples."""
    if system.parallel.splits:
        from bertbench.training.layout_trainer import LayoutTrainer  # noqa: PLC0415 - for split models only

        assert isinstance(trainer, LayoutTrainer), "its layout determines this rank's samples"
        return LayoutEvaluator(evaluation, system.evaluation.batch_size, trainer)
    return Evaluator(evaluation, system.evaluation.batch_size, world, fill_of(system))
