"""`lab pipeline`: compare GPipe, 1F1B and interleaved 1F1B for the same work, measured on 2 ranks, simulated on more.

Stages sleep, so a pass takes the same time on every machine and needs no core. torch's schedules, gloo's messages and
our timing are those of a run. The stages of a rank take the same total time in each schedule. Schedules alternate in
rounds, and ratios are computed from pairs. For more than two ranks, an event simulation uses the times of passes and
the latency of messages.
"""

import argparse
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from bertbench.common.progress import Progress
from bertbench.common.stage_times import StageTime
from bertbench.common.tables import table_lines
from bertbench.config.layout import PipelineSchedule, bubble_share
from bertbench.distributed.world import World
from bertbench.machine.processor import processor
from bertbench.runs.pipeline_trace import StageTimes
from bertbench.runs.trace_format import PASSES
from lab.bench.harness import BenchResult, Ratio, alternate, command, paired_ratio
from lab.bench.pipeline_simulation import Pass, orders, simulate_pipeline
from lab.bench.sleeping_pipeline import SleepingPipeline
from lab.spawn import on_ranks

SCHEDULES: dict[PipelineSchedule, int] = {"gpipe": 1, "1f1b": 1, "interleaved": 2}
"""The schedules, with the number of stages on each rank."""
_RANKS = 2
_BACKWARD = 2  # a backward pass takes twice as long as a forward pass
_SIMULATED_RANKS = (2, 4, 8, 64)
_LATENCIES_US = (0.0, 20.0, 1000.0)
_MICROBATCHES_OF_A_RANK = 4  # for simulated ranks, like the next constant
_SIMULATED_FORWARD_S = 0.01
_COLUMNS = {
    "schedule": "{0.schedule}", "step ms": "{0.step_ms:,.1f}", "bubble": "{0.bubble:.1%}",
    "by formula": "{0.by_formula:.1%}", "simulated": "{0.simulated:.1%}", "GPipe's time / its": "{0.gpipe_is!s:}",
}  # fmt: skip
_SIMULATED_COLUMNS = {
    "schedule": "{0.schedule}", "ranks": "{0.ranks:,}", "microbatches": "{0.microbatches:,}",
    "message us": "{0.message_us:,.0f}", "bubble": "{0.bubble:.1%}", "by formula": "{0.by_formula:.1%}",
    "1F1B's time / its": "{0.one_f_one_b_is:.3f}",
}  # fmt: skip


@dataclass(frozen=True)
class MeasuredSchedule:
    """The medians of one schedule's steps."""

    schedule: PipelineSchedule
    step_ms: float
    bubble: float
    by_formula: float
    simulated: float
    """The bubble in a simulation whose messages take no time."""
    gpipe_is: Ratio
    """The time of GPipe's step divided by this schedule's, in pairs."""


@dataclass(frozen=True)
class SimulatedSchedule:
    """One schedule, simulated on more ranks."""

    schedule: PipelineSchedule
    ranks: int
    microbatches: int
    message_us: float
    bubble: float
    by_formula: float
    one_f_one_b_is: float
    """The time of 1F1B's step divided by this schedule's."""


def measure(arguments: argparse.Namespace, progress: Progress) -> BenchResult:
    """Measure on two ranks, and simulate more ranks."""
    forward_s = arguments.forward_ms / 1e3
    microbatches = arguments.microbatches
    progress.message(f"{arguments.rounds} rounds on {_RANKS} ranks")
    steps = on_ranks(_RANKS, _steps, microbatches, forward_s, arguments.rounds)
    gpipe_s = [seconds for seconds, _ in steps["gpipe"]]
    measured = []
    for schedule, virtual_stages in SCHEDULES.items():
        seconds = [step_s for step_s, _ in steps[schedule]]
        measured.append(
            MeasuredSchedule(
                schedule=schedule,
                step_ms=round(1e3 * statistics.median(seconds), 3),
                bubble=round(statistics.median(bubble for _, bubble in steps[schedule]), 4),
                by_formula=round(bubble_share(_RANKS, microbatches, virtual_stages), 4),
                simulated=round(_simulated(schedule, _RANKS, microbatches, 0.0, forward_s)[0], 4),
                gpipe_is=paired_ratio(gpipe_s, seconds),
            )
        )
    simulated = simulate_beyond()
    head = (
        f"{_RANKS} ranks on {processor()}, {microbatches} microbatches; for each, stages sleep {arguments.forward_ms} "
        f"ms forward and {_BACKWARD * arguments.forward_ms} ms backward; medians of {arguments.rounds} rounds"
    )
    forward_ms = 1e3 * _SIMULATED_FORWARD_S
    beyond = (
        f"simulated: {_MICROBATCHES_OF_A_RANK} microbatches for each rank; a rank takes {forward_ms:g} ms for a "
        f"microbatch's forward pass and {_BACKWARD * forward_ms:g} ms for its backward pass"
    )
    lines = [head, *table_lines(measured, _COLUMNS), "", beyond, *table_lines(simulated, _SIMULATED_COLUMNS)]
    return BenchResult({"measured": measured, "simulated": simulated}, lines)


def simulate_beyond() -> Sequence[SimulatedSchedule]:
    """Simulate every schedule on increasing numbers of ranks, with each latency of messages."""
    rows = []
    for ranks in _SIMULATED_RANKS:
        microbatches = _MICROBATCHES_OF_A_RANK * ranks
        for message_us in _LATENCIES_US:
            _, plain_s = _simulated("1f1b", ranks, microbatches, message_us / 1e6, _SIMULATED_FORWARD_S)
            for schedule, virtual_stages in SCHEDULES.items():
                bubble, step_s = _simulated(schedule, ranks, microbatches, message_us / 1e6, _SIMULATED_FORWARD_S)
                by_formula = bubble_share(ranks, microbatches, virtual_stages)
                rows.append(
                    SimulatedSchedule(
                        schedule=schedule,
                        ranks=ranks,
                        microbatches=microbatches,
                        message_us=message_us,
                        bubble=round(bubble, 4),
                        by_formula=round(by_formula, 4),
                        one_f_one_b_is=round(plain_s / step_s, 4),
                    )
                )
    return rows


def _simulated(
    schedule: PipelineSchedule, ranks: int, microbatches: int, message_s: float, forward_s: float
) -> tuple[float, float]:
    """Return the bubble and the duration of a simulated step, in seconds."""
    virtual_stages = SCHEDULES[schedule]

    def seconds_of(taken: Pass) -> float:
        of_rank = forward_s if taken.kind == "forward" else _BACKWARD * forward_s
        return of_rank / virtual_stages

    order = orders(schedule, ranks, microbatches, virtual_stages)
    step = simulate_pipeline(order, seconds_of, message_s, ranks * virtual_stages)
    return step.bubble, step.seconds


def _steps(
    world: World, microbatches: int, forward_s: float, rounds: int
) -> dict[PipelineSchedule, list[tuple[float, float]]]:
    """Return the seconds and bubble of each schedule's steps; schedules alternate. Collective."""
    pipelines = {
        schedule: SleepingPipeline(world, schedule, microbatches, virtual, forward_s, _BACKWARD * forward_s)
        for schedule, virtual in SCHEDULES.items()
    }

    def step(schedule: PipelineSchedule, _: int) -> tuple[float, float]:
        world.barrier()
        times = pipelines[schedule].step_times(world)
        return seconds_of_steps(times), bubble_of_times(times) or 0.0

    return alternate({schedule: partial(step, schedule) for schedule in SCHEDULES}, rounds, warm_up=1)


def bubble_of_times(stage_times: StageTimes) -> float | None:
    """Return the bubble of the recorded steps; None if there are none."""
    total_s = seconds_of_steps(stage_times)
    busy_s = sum(stage_time.ended - stage_time.began for stage_time in _passes(stage_times))
    return 1 - busy_s / (len(stage_times) * total_s) if total_s else None


def seconds_of_steps(stage_times: StageTimes) -> float:
    """Return the seconds from the first to the last pass of a step, summed over the recorded steps."""
    passes = _passes(stage_times)
    total_s = 0.0
    for step in {stage_time.step for stage_time in passes}:
        of_step = [stage_time for stage_time in passes if stage_time.step == step]
        total_s += max(stage_time.ended for stage_time in of_step) - min(stage_time.began for stage_time in of_step)
    return total_s


def _passes(stage_times: StageTimes) -> list[StageTime]:
    return [stage_time for of_rank in stage_times for stage_time in of_rank if stage_time.kind in PASSES]


add_arguments, run = command(
    measure, ("--rounds", 20, "steps of each schedule"), ("--microbatches", 8, "microbatches of a step, even"),
    ("--forward-ms", 100, "milliseconds that a rank's forward pass sleeps"),
)  # fmt: skip
