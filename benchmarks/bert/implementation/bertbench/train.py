"""The timed run, on one page: initialise, start the clock, train and evaluate in turn, stop at the target."""

import signal
import time
from types import FrameType

from mlperf_logging.mllog import constants

from bertbench.caches import clear_caches
from bertbench.config import System
from bertbench.data.dataset import Dataset
from bertbench.data.loader import load_steps
from bertbench.data.manifest import Manifest
from bertbench.data.sampler import Sampler
from bertbench.errors import ConfigError, DataError, RunError
from bertbench.evaluate import HeldOut
from bertbench.events import Clock, MlperfLog, Run, log_submission
from bertbench.metrics import Metrics
from bertbench.paths import data_folder
from bertbench.progress import RunProgress
from bertbench.results import ResultFiles
from bertbench.seeding import derive
from bertbench.trainer import Trainer
from bertbench.world import World


def train(system: System, world: World, seed: int, files: ResultFiles | None, progress: RunProgress) -> Run:
    """Train to the target or to the limit; the same seed on the same machine gives the same losses.

    `files` is where rank 0 writes, None on the other ranks.
    Raises RunError, ConfigError or DataError; if the clock has started, the log then ends with `aborted`.
    """
    _stop_on_termination()
    with (
        MlperfLog(files.log if files else None) as log,
        Metrics(files.metrics if files else None, world) as metrics,
    ):
        clock = Clock(log, world)
        with clock.init():
            log.point(constants.CACHE_CLEAR, system.launch.clear_caches and clear_caches())
            log_submission(log, system, seed)
            training, held_out = open_data(system)
            trainer = Trainer(system, world, seed)
            sampler = Sampler(
                training,
                system.global_batch_size,
                derive(seed, "data"),
                world.size,
                system.data.gradient_accumulation_steps,
                system.loss.normalize,
            )
            evaluator = HeldOut(held_out, system.evaluation.batch_size, world)

        with clock.run(evaluation_samples=len(held_out)) as run:
            batches = load_steps(sampler, training.map_samples(), range(system.max_steps), world.rank, world.device)
            for first, stop in system.blocks():
                with run.training(first * system.global_batch_size, (stop - first) * system.global_batch_size):
                    for step in range(first, stop):
                        began = time.perf_counter()
                        loss, norm, rate = trainer.step(step, next(batches))
                        samples = (step + 1) * system.global_batch_size
                        metrics.record(step + 1, samples, loss, rate, norm, 1e3 * (time.perf_counter() - began))
                        progress.trained(step + 1, stop, metrics.last_loss)
                    metrics.flush()
                with run.evaluation():
                    accuracy = evaluator.accuracy(trainer.model, system.precision.compute)
                    run.measured(accuracy)
                progress.evaluated(run.samples, accuracy)
                if accuracy >= system.evaluation.target:
                    run.success()
                    break
            else:
                run.aborted(f"target {system.evaluation.target} not reached in {system.max_steps} steps")
        trainer.close()
    return run


def open_data(system: System) -> tuple[Dataset, Dataset]:
    """The training and the evaluation split: metadata only, so it is not on the clock.

    Raises DataError if the data is not there or damaged, ConfigError if it doesn't fit the model.
    """
    folder = data_folder(system.data.path)
    held_out_folder = data_folder(system.data.eval_path or system.data.path)
    for each in (folder, held_out_folder):
        if not each.exists():
            raise DataError(
                f"{each}: found no dataset; make it with `bertbench data prepare --system {system.name}`, "
                "or set DATADIR"
            )
    tokenizer = Manifest.read(folder).tokenizer
    if tokenizer != Manifest.read(held_out_folder).tokenizer:
        raise DataError(
            f"{folder} and {held_out_folder} use different vocabularies; prepare both with the same --vocab"
        )
    if tokenizer.vocab_size > system.model.vocab_size:
        raise ConfigError(
            f"{folder}: the vocabulary has {tokenizer.vocab_size:,} entries, model.vocab_size is "
            f"{system.model.vocab_size:,}; raise model.vocab_size to at least as much"
        )
    training, held_out = Dataset.open(folder, "train"), Dataset.open(held_out_folder, "eval")
    for split in (training, held_out):
        if split.split.longest > system.model.max_positions:
            raise ConfigError(
                f"{split.folder}: the longest {split.name} sample has {split.split.longest} tokens, "
                f"model.max_positions is {system.model.max_positions}; raise it to at least as much"
            )
    return training, held_out


def _stop_on_termination() -> None:
    """Let SIGTERM end the run in order: the log is closed and says why."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise RunError(f"stopped by {signal.Signals(number).name}")

    signal.signal(signal.SIGTERM, stop)
