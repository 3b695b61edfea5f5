"""The timed run, on one page: initialise, start the clock, train and evaluate in turn, stop at the target."""

from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from bertbench.config import System
from bertbench.distributed.preemption import Preemption, stop_at_once
from bertbench.distributed.startup import Startup
from bertbench.distributed.world import World
from bertbench.loading.options import OnBadSample
from bertbench.machine.arithmetic import choose_arithmetic
from bertbench.results.files import ResultFiles
from bertbench.results.mlperf_log import Run
from bertbench.results.opening import open_run
from bertbench.results.progress import RunProgress
from bertbench.training.build import build, log_start
from bertbench.training.final_weights import write_final_weights
from bertbench.training.profiling import Profiler
from bertbench.training.self_check import check

if TYPE_CHECKING:
    from bertbench.checkpoint.resumption import Resumption


class Options(NamedTuple):
    """Options that make a run differ from a new one that ends at its target."""

    resumption: "Resumption | None" = None
    """The snapshot to resume from; `files` then belong to the run that wrote it."""
    on_bad_sample: OnBadSample = "fail"
    startup: Startup | None = None
    """Start-up marks so far."""
    profiler: Profiler | None = None
    not_a_result: str | None = None
    """The log's word for a run that can't be a result, such as smoke; such a run never succeeds."""


def train(
    system: System,
    world: World,
    seed: int,
    files: ResultFiles | None,
    progress: RunProgress,
    options: Options = Options(),  # noqa: B008 - immutable
) -> Run:
    """Train to the target or to the limit; the same seed on the same machine gives the same losses.

    Rank 0 writes `files`, other ranks have None. Raises RunError, ConfigError, DataError or CheckpointError; the log
    ends with `aborted` if its clock had started. SIGTERM and SIGUSR1 raise StoppedError, after a snapshot by all ranks.
    """
    stop_at_once()
    resumption, startup, every = options.resumption, options.startup or Startup(), system.sync.report_steps
    taken, evaluations = (resumption.meta.step, resumption.meta.evaluations) if resumption else (0, ())
    batch, profiler = system.global_batch_size, options.profiler or Profiler(world, on=False)
    with open_run(system, world, files, startup, resumption is not None, options.not_a_result) as (log, metrics, clock):
        with clock.init():
            arithmetic = choose_arithmetic(system, world, files.arithmetic if files and resumption else None)
            if resumption is None:  # a resumed run keeps what its first attempt found
                arithmetic = check(system, world, arithmetic)
            if files:
                files.describe_arithmetic(arithmetic.record())
            if resumption is None:
                log_start(log, arithmetic.applied(system), world, seed)
            startup.mark("caches")
            built = build(system, world, seed, files, options.on_bad_sample, startup, arithmetic, metrics.phases)
            trainer, evaluator, snapshots, loader = built
            if resumption and taken:
                snapshots.load(trainer, resumption.path, resumption.meta)
            progress.message(f"{arithmetic.text()}\n{trainer.communication().text()}")

        with clock.run(len(evaluator.dataset), evaluations) as run, profiler, Preemption(world, every) as preemption:
            batches = world.watchdog.around(loader.steps(range(taken, system.max_steps)), taken)
            for first, stop in system.blocks(taken):
                with run.training(first * batch, (stop - first) * batch, begun=first < taken):
                    for step in range(max(first, taken), stop):
                        began = perf_counter()
                        loaded = next(batches)
                        report = trainer.step(step, loaded.parts)
                        metrics.record(step + 1, (step + 1) * batch, report, 1e3 * (perf_counter() - began), loaded)
                        startup.mark("first step")
                        snapshots.save_if_due(trainer, step + 1, run.evaluations, metrics)
                        progress.trained(step + 1, stop, metrics.last_loss)
                        profiler.step()
                        if preemption.stops_after(step + 1):
                            snapshots.save_last(trainer, step + 1, run.evaluations, metrics)
                            raise preemption.error(step + 1)
                    metrics.flush()
                with run.evaluation(), trainer.evaluating():
                    accuracy = evaluator.accuracy(trainer.model, arithmetic.precision)
                    run.measured(accuracy)
                progress.evaluated(run.samples, accuracy)
                if accuracy >= system.evaluation.target:
                    run.success()
                    break
            else:
                run.aborted(f"target {system.evaluation.target} not reached in {system.max_steps} steps")
        snapshots.close()
        if system.checkpoint.final_weights and options.not_a_result is None:
            progress.message(write_final_weights(system, world, trainer, files, seed, run.samples))
        trainer.close()
    return run
