"""The timed run, on one page: initialise, start the clock, train and evaluate in turn, stop at the target."""

from time import perf_counter

from bertbench.config import System
from bertbench.distributed.preemption import Preemption, stop_at_once
from bertbench.distributed.startup import Startup
from bertbench.distributed.world import World
from bertbench.results.files import ResultFiles
from bertbench.results.mlperf_log import Run
from bertbench.results.opening import open_run
from bertbench.results.profiling import Profiler
from bertbench.results.progress import RunProgress
from bertbench.training.build import NEW, Options, build
from bertbench.training.final_weights import write_final_weights


def train(
    system: System, world: World, seed: int, files: ResultFiles | None, progress: RunProgress, options: Options = NEW
) -> Run:
    """Train to the target or to the limit.

    The seed fixes initial weights, dropout and the order of the data. The same machine, ranks, threads and arithmetic
    (arithmetic.json) then repeat a CPU's losses to the bit. On CUDA they repeat up to rounding, which grows from step
    to step: flash attention's backward pass and an embedding's gradient add atomically, in any order. With
    launch.rank_speeds, the measured speeds decide which rank sums which samples.

    Rank 0 writes `files`, other ranks have None. Raises RunError, ConfigError, DataError or CheckpointError; the log
    ends with `aborted` if its clock had started. SIGTERM and SIGUSR1 raise StoppedError, after a snapshot by all ranks.
    """
    stop_at_once()
    resumption = options.resumption
    steps_taken = resumption.meta.step if resumption else 0
    evaluations = resumption.meta.evaluations if resumption else ()
    startup = options.startup or Startup()
    profiler = options.profiler or Profiler(world, on=False)
    preemption = Preemption(world, system.sync.report_steps)
    batch = system.global_batch_size
    with open_run(system, world, files, startup, resumption is not None, options.not_a_result) as (log, metrics, clock):
        with clock.init():
            built = build(system, world, seed, files, options, startup, log, metrics.phases)
            trainer = built.trainer
            snapshots = built.snapshots
            progress.message(f"{built.arithmetic.text()}\n{trainer.communication().text()}")

        with clock.run(len(built.evaluator.dataset), evaluations) as run, profiler, preemption:
            loaded_steps = built.loader.steps(range(steps_taken, system.max_steps))
            batches = world.watchdog.around(loaded_steps, steps_taken)
            for first, stop in system.blocks(steps_taken):
                with run.training(first * batch, (stop - first) * batch, begun=first < steps_taken):
                    for step in range(max(first, steps_taken), stop):
                        began = perf_counter()
                        loaded = next(batches)
                        startup.mark("first batch")
                        report = trainer.step(step, loaded.parts)
                        step_ms = 1e3 * (perf_counter() - began)
                        metrics.record(step + 1, (step + 1) * batch, report, step_ms, loaded)
                        startup.mark("first step")
                        snapshots.save_if_due(trainer, step + 1, run.evaluations, metrics)
                        progress.trained(step + 1, stop, metrics.last_loss)
                        profiler.step()
                        if preemption.stops_after(step + 1):
                            snapshots.save_last(trainer, step + 1, run.evaluations, metrics)
                            raise preemption.error(step + 1)
                    metrics.flush()
                with run.evaluation(), trainer.evaluating():
                    accuracy = built.evaluator.accuracy(trainer.model, built.arithmetic.precision)
                    run.measured(accuracy)
                progress.evaluated(run.samples, accuracy)
                if accuracy >= system.evaluation.target:
                    run.success()
                    break
            else:
                run.aborted(f"target {system.evaluation.target} not reached in {system.max_steps} steps")
        snapshots.close()
        if system.checkpoint.final_weights:
            progress.message(write_final_weights(system, world, trainer, files, seed, run.samples))
        trainer.close()
    return run
