"""Do the timed run, on one page: initialise, start the clock, alternate training and evaluation, stop at the target."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

from bertbench.common.errors import CheckpointError
from bertbench.common.paths import data_path, shown_path
from bertbench.config import System
from bertbench.data.store.manifest import Manifest
from bertbench.distributed.preemption import Preemption, stop_at_once
from bertbench.distributed.startup import Startup
from bertbench.distributed.world import World
from bertbench.runs.files import ResultFiles
from bertbench.runs.metrics import FlopRate
from bertbench.runs.mlperf_log import Run, open_run
from bertbench.runs.run_progress import RunProgress
from bertbench.runs.submission import log_samples_by_stratum
from bertbench.training.build import NEW_RUN, TrainOptions, build_run
from bertbench.training.short_run import Profiler
from bertbench.training.trainer import Trainer


def train(
    system: System,
    world: World,
    seed: int,
    files: ResultFiles | None,
    progress: RunProgress,
    options: TrainOptions = NEW_RUN,
) -> Run:
    """Train until the target or the limit of steps is reached.

    The seed determines initial weights, dropout and the order of the data. On CPUs, the same machine, ranks, threads
    and arithmetic (arithmetic.json) then repeat losses to the bit. On CUDA, losses repeat up to rounding errors, which
    grow from step to step, because flash attention's backward pass and the gradient of embeddings use atomic additions
    in any order.

    Rank 0 writes `files`; on other ranks it is None. Raises RunError, ConfigError, DataError or CheckpointError; if the
    clock had started, the log ends with `aborted`. SIGTERM and SIGUSR1 raise StoppedError after all ranks have taken a
    snapshot.
    """
    stop_at_once()
    resumption = options.resumption
    steps_taken = resumption.meta.step if resumption else 0
    evaluations = resumption.meta.evaluations if resumption else ()
    startup = options.startup or Startup()
    profiler = options.profiler or Profiler(world, on=False)
    preemption = Preemption(world, options.technique.report_steps)
    with open_run(
        system,
        world,
        files,
        startup,
        resumed=resumption is not None,
        not_a_result=options.not_a_result,
        report_steps=options.technique.report_steps,
    ) as (log, metrics, clock):
        with clock.init():
            built = build_run(system, world, seed, files, options, startup, log)
            system = built.system
            trainer = built.trainer
            metrics.flop_rate = FlopRate.of(system, built.peak)
            metrics.layout = system.layout if system.layout.pipeline > 1 else None
            progress.message(f"{built.arithmetic.text()}\n{trainer.describe_step().text()}\n{built.peak.text()}")
            batch_size = system.global_batch_size

        with _settled_heap(), clock.run(len(built.evaluator.dataset), evaluations) as run, profiler, preemption:
            loaded_steps = built.loader.steps(range(steps_taken, system.max_steps))
            loaded_steps = world.watchdog.around(loaded_steps, steps_taken)
            metrics.start()
            for first, stop in system.blocks(steps_taken):
                with run.training(first * batch_size, (stop - first) * batch_size, begun=first < steps_taken):
                    for step in range(max(first, steps_taken), stop):
                        began = perf_counter()
                        loaded = next(loaded_steps)
                        startup.mark("first batch")
                        report = trainer.step(step, loaded.parts)
                        step_ms = 1e3 * (perf_counter() - began)
                        metrics.record(step + 1, (step + 1) * batch_size, report, step_ms, loaded)
                        startup.mark("first step")
                        built.evaluator.read_ahead()
                        built.snapshots.save_if_due(trainer, step + 1, run.evaluations, metrics)
                        progress.trained(step + 1, stop, metrics.last_loss, metrics.last_flops)
                        profiler.step()
                        if preemption.stops_after(step + 1):
                            built.snapshots.save_last(trainer, step + 1, run.evaluations, metrics)
                            raise preemption.error(step + 1)
                    metrics.flush()
                with run.evaluation(), trainer.evaluating():
                    accuracy = built.evaluator.accuracy(trainer.model, system.precision.compute)
                    run.measured(accuracy)
                progress.evaluated(run.samples, accuracy)
                if accuracy >= system.evaluation.target:
                    run.success()
                    break
            else:
                run.aborted(f"target {system.evaluation.target} not reached in {system.max_steps} steps")
        built.snapshots.close()
        if world.leads:
            log_samples_by_stratum(log, built.planner, run.samples // batch_size)
        _write_last_files(system, world, trainer, files, seed, run, progress)
        trainer.close()
    return run


@contextmanager
def _settled_heap() -> Iterator[None]:
    """Let Python's garbage collector, within the context, skip earlier objects, such as modules and the model.

    A full collection of the 400,000 objects that torch alone creates takes tenths of a second.
    """
    gc.collect()  # what is garbage now would otherwise stay until the end
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _write_last_files(
    system: System,
    world: World,
    trainer: Trainer,
    files: ResultFiles | None,
    seed: int,
    run: Run,
    progress: RunProgress,
) -> None:
    """Write the files that follow when the clock has stopped: a pipeline's steps, and the weights. Collective."""
    if system.layout.pipeline > 1:
        from bertbench.runs.pipeline_trace import write_pipeline_trace  # noqa: PLC0415 - for few runs

        write_pipeline_trace(trainer.stage_times(), system, world, files)
    if system.checkpoint.final_weights:
        progress.message(write_final_weights(system, world, trainer, files, seed, run.samples))


def write_final_weights(
    system: System, world: World, trainer: Trainer, files: ResultFiles | None, seed: int, samples: int
) -> str:
    """Gather the model on rank 0 and write it to the run's folder, as weights.safetensors. Collective.

    Return a line for the user on rank 0, and "" on other ranks. `samples` is the number of samples trained. If writing
    fails, the run's result is still valid.
    """
    world.watchdog.at("writing the final weights")
    line = ""
    with trainer.evaluating():  # the weights that reached the target
        model = trainer.gather_model()
        if files and model is not None:
            from bertbench.checkpoint.weights_file import write_weights  # noqa: PLC0415 - for runs that keep weights

            try:
                entries = _vocabulary_entries(system)
                source = f"{system.name}, seed {seed}, after {samples:,} samples"
                write_weights(files.weights, model.state_dict(), system.model.shape(), entries, source)
                line = f"wrote {shown_path(files.weights)}"
            except CheckpointError as error:
                line = f"warning: {error}; the run's result is valid, but its weights aren't saved"
    world.barrier()  # a rank that exits stops its heartbeat, and rank 0 would report it as lost
    return line


def _vocabulary_entries(system: System) -> int:
    """Return the number of vocabulary rows in use: the checkpoint's if the model started from one, else the data's."""
    if system.model.checkpoint is not None:
        from bertbench.checkpoint.start import check_weights  # noqa: PLC0415 - for runs that start from weights

        return check_weights(system, data_path(system.model.checkpoint)).real_vocab_size
    return Manifest.read(data_path(system.data.path)).tokenizer.vocab_size
