"""The timed run, on one page: initialise, start the clock, train and evaluate in turn, stop at the target."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from mlperf_logging.mllog import constants

from bertbench.balance.plan import EXCHANGING, Planner
from bertbench.checkpoint.resumption import Resumption
from bertbench.checkpoint.snapshots import Snapshots
from bertbench.common.errors import ConfigError, DataError
from bertbench.common.paths import data_folder, weights_file
from bertbench.common.progress import RunProgress
from bertbench.common.seeding import derive
from bertbench.config import System
from bertbench.data.store.dataset import Dataset, SplitName
from bertbench.data.store.index import Index
from bertbench.data.store.manifest import Manifest
from bertbench.distributed.preemption import Preemption, stop_at_once
from bertbench.distributed.world import World
from bertbench.loading.exchange import Exchange
from bertbench.loading.loader import LoadedStep, load_steps
from bertbench.loading.sample_check import OnBadSample, Soundness
from bertbench.loading.sampler import Sampler
from bertbench.machine.caches import clear_caches, cleared_by_launcher
from bertbench.parallel.microbatches import TokenSampler
from bertbench.results.files import ResultFiles
from bertbench.results.metrics import Metrics
from bertbench.results.mlperf_log import Clock, MlperfLog, Run, log_submission, log_weights
from bertbench.results.startup import Startup
from bertbench.training.evaluate import HeldOut
from bertbench.training.layout_evaluate import LayoutHeldOut
from bertbench.training.layout_trainer import AnyTrainer, LayoutTrainer
from bertbench.training.profiling import Profiler
from bertbench.training.trainer import Trainer
from bertbench.weights.file import Weights
from bertbench.weights.names import pieces


def train(
    system: System,
    world: World,
    seed: int,
    files: ResultFiles | None,
    progress: RunProgress,
    resumption: Resumption | None = None,
    on_bad_sample: OnBadSample = "fail",
    startup: Startup | None = None,
    profiler: Profiler | None = None,
    not_a_result: str | None = None,
) -> Run:
    """Train to the target or to the limit; the same seed on the same machine gives the same losses.

    `files` is where rank 0 writes, None on the other ranks; with `resumption` they are those of the run that goes on.
    `startup` has the marks so far. A run that is `not_a_result` never succeeds; the word is what its log calls it.
    Raises RunError, ConfigError, DataError or CheckpointError; if the clock has started, the log then ends with
    `aborted`. SIGTERM and SIGUSR1 raise StoppedError: while training after a step, the same on all ranks, and a
    snapshot.
    """
    stop_at_once()
    taken, evaluations = (resumption.meta.step, resumption.meta.evaluations) if resumption else (0, ())
    batch = system.global_batch_size
    startup, profiler = startup or Startup(time.time()), profiler or Profiler(world, on=False)
    with (
        MlperfLog(files.log if files else None) as log,
        Metrics(files.metrics if files else None, world, log) as metrics,
    ):
        clock = Clock(log, world, system.init_limit_minutes, startup, resumption is not None, not_a_result)
        with clock.init():
            if resumption is None:
                log_beginning(log, system, world, seed)
            startup.mark("caches")
            built = _build(system, world, seed, files, on_bad_sample, startup)
            trainer, snapshots = built.trainer, built.snapshots
            if resumption and taken:
                snapshots.load(trainer, resumption.path, resumption.meta)
            communication = trainer.communication()
            if files:
                files.describe_communication(communication)
            progress.say(communication.text())

        with clock.run(evaluation_samples=len(built.held_out.dataset), evaluations=evaluations) as run, profiler:
            preemption = Preemption(world)
            batches = world.watchdog.around(built.load(range(taken, system.max_steps)), taken)
            for first, stop in system.blocks():
                if stop < taken:
                    continue
                with run.training(first * batch, (stop - first) * batch, begun=first < taken):
                    for step in range(max(first, taken), stop):
                        began = time.perf_counter()
                        loaded = next(batches)
                        report = trainer.step(step, loaded.parts)
                        step_ms = 1e3 * (time.perf_counter() - began)
                        startup.mark("first step")
                        metrics.record(step + 1, (step + 1) * batch, report, step_ms, loaded)
                        snapshots.save_if_due(trainer, step + 1, run.evaluations, metrics)
                        progress.trained(step + 1, stop, metrics.last_loss)
                        profiler.step()
                        if preemption.stops_after(step + 1):
                            snapshots.save_last(trainer, step + 1, run.evaluations, metrics)
                            raise preemption.error(step + 1)
                    metrics.flush()
                with run.evaluation():
                    accuracy = built.held_out.accuracy(trainer.model, system.precision.compute)
                    run.measured(accuracy)
                progress.evaluated(run.samples, accuracy)
                if accuracy >= system.evaluation.target:
                    run.success()
                    break
            else:
                run.aborted(f"target {system.evaluation.target} not reached in {system.max_steps} steps")
        preemption.over()
        snapshots.close()
        trainer.close()
    return run


class _Built(NamedTuple):
    """What a run needs beside its clock."""

    trainer: AnyTrainer
    snapshots: Snapshots
    held_out: HeldOut
    load: Callable[[range], Iterator[LoadedStep]]
    """Reads this rank's batches of so many steps: data that must not be touched before the clock runs."""


def _build(
    system: System, world: World, seed: int, files: ResultFiles | None, on_bad_sample: OnBadSample, startup: Startup
) -> _Built:
    training, held_out = open_data(system)
    startup.mark("data")
    sampler = make_sampler(system, training, seed)
    trainer = make_trainer(system, world, seed, sampler, startup.mark)
    exchange = make_exchange(system, sampler, world)

    def load(steps: range) -> Iterator[LoadedStep]:
        return load_steps(
            sampler,
            training.map_samples(),
            steps,
            system.layout.coordinate(world.rank).data,
            world.device,
            exchange,
            Soundness.of(training, on_bad_sample, world.rank),
            system.fills_batches,
            startup.mark,
        )

    return _Built(
        trainer,
        Snapshots(system, world, seed, files),
        make_evaluator(system, held_out, trainer, world),
        load,
    )


def log_beginning(log: MlperfLog, system: System, world: World, seed: int) -> None:
    """What a run logs of itself before its clock starts; raises what `check_weights` raises."""
    for cleared in caches_cleared(system, world):
        log.point(constants.CACHE_CLEAR, cleared)
    log_submission(log, system, seed)
    if system.model.checkpoint is not None:
        check_weights(system, weights_file(system.model.checkpoint))
        log_weights(log, (piece.tensorflow for piece in pieces(system.model.shape())))


def make_sampler(system: System, training: Dataset, seed: int) -> Sampler:
    """What every data-parallel rank trains on in every step, as the system's balance method says."""
    planner = make_planner(system, training.entries_N, derive(seed, "data"))
    kind = TokenSampler if system.parallel.pipeline > 1 else Sampler
    return kind(training, planner, system.parts, system.loss.normalize)


def make_planner(system: System, entries_N: Index, seed: int) -> Planner:
    """Which data-parallel rank gets which samples."""
    # where ranks share the model, methods that know of nodes are refused
    nodes = system.hardware.number_of_nodes if system.layout.data == system.world_size else 1
    return Planner(entries_N, system.balance, system.global_batch_size, seed, nodes, system.layout.data // nodes)


def make_trainer(
    system: System, world: World, seed: int, sampler: Sampler, mark: Callable[[str], None] = lambda _: None
) -> AnyTrainer:
    """The trainer of this rank's model, or of its part of it."""
    if not system.parallel.splits:
        return Trainer(system, world, seed, mark)
    tokens = 0
    if isinstance(sampler, TokenSampler):
        tokens = sampler.budget(range(system.max_steps), system.layout.coordinate(world.rank).data)
    return LayoutTrainer(system, world, seed, tokens, mark)


def make_evaluator(system: System, held_out: Dataset, trainer: AnyTrainer, world: World) -> HeldOut:
    """The held-out samples that this rank scores."""
    if isinstance(trainer, LayoutTrainer):
        return LayoutHeldOut(held_out, system.evaluation.batch_size, trainer)
    return HeldOut(held_out, system.evaluation.batch_size, world, system.fills_batches)


def make_exchange(system: System, sampler: Sampler, world: World) -> Exchange | None:
    """The exchange of drawn samples, where the balance method has one."""
    if system.data.balance not in EXCHANGING:
        return None
    return Exchange(sampler.dataset, world.neighbours(world.size // sampler.planner.groups))


def caches_cleared(system: System, world: World) -> list[bool]:
    """Whether each node's page cache was dropped: by its launcher, or now by its first rank."""
    mine = ""
    if world.ranks.local_rank == 0:
        cleared = cleared_by_launcher() or (system.launch.clear_caches and clear_caches())
        mine = "yes" if cleared else "no"
    return [answer == "yes" for answer in world.from_all(mine) if answer]


def open_data(system: System) -> tuple[Dataset, Dataset]:
    """The training and the evaluation split: metadata only, so it is not on the clock.

    Raises DataError if the data is not there or damaged, ConfigError if it doesn't fit the model.
    """
    training, held_out = open_split(system, "train"), open_split(system, "eval")
    if Manifest.read(training.folder).tokenizer != Manifest.read(held_out.folder).tokenizer:
        raise DataError(
            f"{training.folder} and {held_out.folder} use different vocabularies; prepare both with the same --vocab"
        )
    return training, held_out


def open_split(system: System, name: SplitName) -> Dataset:
    """One split of the system's data; raises what `open_data` raises."""
    held_out = name == "eval" and system.data.eval_path
    folder = data_folder(held_out or system.data.path)
    if not folder.exists():
        raise DataError(
            f"{folder}: found no dataset; make it with `bertbench data prepare --system {system.name}`, or set DATADIR"
        )
    entries = Manifest.read(folder).tokenizer.vocab_size
    if entries > system.model.vocab_size:
        raise ConfigError(
            f"{folder}: the vocabulary has {entries:,} entries, model.vocab_size is {system.model.vocab_size:,}; "
            "raise model.vocab_size to at least as much"
        )
    split = Dataset.open(folder, name)
    if split.split.longest > system.model.max_positions:
        raise ConfigError(
            f"{folder}: the longest {name} sample has {split.split.longest} tokens, model.max_positions is "
            f"{system.model.max_positions}; raise it to at least as much"
        )
    return split


def check_weights(system: System, path: Path) -> Weights:
    """The weights of a file, which must fit the system's model and its dataset; reads the header only.

    Raises CheckpointError if they can't be read or belong to another model, ConfigError if to another vocabulary.
    """
    weights = Weights.open(path)
    weights.check_fits(system.model.shape())
    entries = Manifest.read(data_folder(system.data.path)).tokenizer.vocab_size
    if entries > weights.real_vocab_size:
        raise ConfigError(
            f"{path}: knows a vocabulary of {weights.real_vocab_size:,} entries, the dataset's has {entries:,}; "
            "prepare the data with the vocabulary of the checkpoint"
        )
    return weights
