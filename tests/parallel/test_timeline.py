"""A pipeline's timeline and bubble: by hand, by formula, by simulation, and in real runs."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from bertbench.common.phases import BACKWARD, FORWARD, STAGE_WAIT
from bertbench.common.stage_times import StageTime
from bertbench.config.layout import Layout, PipelineSchedule, bubble_share
from bertbench.distributed.world import World
from bertbench.runs.json_files import json_lines
from bertbench.runs.pipeline_trace import pipeline_events, waits
from bertbench.runs.straggler import mean_times
from bertbench.runs.trace_format import PIPELINE
from bertbench.runs.trace_reader import PassBar, StepPhases, read_trace
from lab.bench.pipeline import bubble_of_times
from lab.bench.pipeline_simulation import Pass, orders, simulate_pipeline
from lab.bench.sleeping_pipeline import SleepingPipeline
from tests.conftest import Answer, Tiny
from tests.ranks import run_ranks
from tests.runs.test_flop_rate import trained

SETTINGS: list[tuple[PipelineSchedule, int, int, int]] = [
    ("gpipe", 3, 5, 1), ("1f1b", 4, 8, 1), ("1f1b", 4, 3, 1), ("interleaved", 2, 4, 2), ("interleaved", 4, 8, 3),
]  # fmt: skip


@pytest.mark.parametrize(("schedule", "ranks", "microbatches", "virtual_stages"), SETTINGS)
def test_a_simulated_bubble_of_equal_stages_is_the_formula_s(
    schedule: PipelineSchedule, ranks: int, microbatches: int, virtual_stages: int
) -> None:
    order = orders(schedule, ranks, microbatches, virtual_stages)
    step = simulate_pipeline(order, lambda taken: 1.0 if taken.kind == "forward" else 2.0, 0.0, ranks * virtual_stages)
    assert step.bubble == pytest.approx(bubble_share(ranks, microbatches, virtual_stages))
    assert len(step.times) == 2 * ranks * virtual_stages * microbatches


def span(kind: Any, stage: int, microbatch: int, began: float, ended: float) -> StageTime:
    return StageTime(kind, 3, stage, microbatch, began, ended)


TWO_STAGES = [
    [
        span("forward", 0, 0, 10.0, 11.0), span("send forward", 0, 0, 11.0, 11.0), span("forward", 0, 1, 11.0, 12.0),
        span("receive backward", 0, 0, 12.0, 14.5), span("backward", 0, 0, 14.5, 16.0),
        span("backward", 0, 1, 17.0, 18.0),
    ],
    [
        span("receive forward", 1, 0, 10.0, 11.5), span("forward", 1, 0, 11.5, 12.5),
        span("backward", 1, 0, 12.5, 14.5), span("send backward", 1, 0, 14.5, 14.5), span("forward", 1, 1, 14.5, 15.5),
        span("backward", 1, 1, 15.5, 16.5),
    ],
]  # fmt: skip


def test_the_bubble_is_the_share_of_the_step_without_passes() -> None:
    """From 10 to 18 s: rank 0 computes 4.5 of 8 s, rank 1 5 of 8 s."""
    assert bubble_of_times(TWO_STAGES) == pytest.approx(1 - 9.5 / 16)
    assert [(wait.began, wait.ended) for wait in waits(TWO_STAGES[0])] == [(12.0, 14.5), (16.0, 17.0)]


def test_the_bubble_of_phases_is_that_of_the_first_stage_s_time() -> None:
    """Data 2 x pipeline 2: first stages take 10 and 12 ms of which they wait 4 and 2; the others compute 6 and 7."""
    forward, backward, stage_wait = ([2.0, 4.0, 2.0, 3.0], [4.0, 6.0, 4.0, 4.0], [4.0, 2.0, 1.0, 1.0])
    phases = StepPhases(step=9, steps=4)
    for phase, by_rank in ((FORWARD, forward), (BACKWARD, backward), (STAGE_WAIT, stage_wait)):
        phases.ms[phase].update(enumerate(by_rank))
    layout = Layout(data=2, pipeline=2)
    stages = {rank: layout.coordinate(rank).pipeline for rank in range(4)}
    assert phases.bubble(stages) == pytest.approx(1 - (6 + 10 + 6 + 7) / 4 / 11)
    assert phases.bubble({}) is None
    assert StepPhases(step=9, steps=4).bubble(stages) is None


def test_a_trace_has_a_track_of_passes_and_one_of_messages_for_each_rank() -> None:
    events = [event for event in pipeline_events(TWO_STAGES, unix_s=1000.0) if event["ph"] == "X"]
    by_track = {track: [event["args"]["kind"] for event in events if event["tid"] == track] for track in range(4)}
    assert by_track[0] == ["forward", "forward", "backward", "backward", "wait", "wait"]
    assert by_track[3] == ["receive forward", "send backward"]
    (sent,) = [event for event in events if event["args"]["kind"] == "send forward"]
    assert (sent["ts"], sent["dur"]) == pytest.approx((1011e6, 0.5e6))  # to the pass that uses it


STEPS = 6


def sleeping_times(world: World, schedule: PipelineSchedule, wanted: float, *sizes: Any) -> list[list[StageTime]]:
    """The times of the first step within .02 of the wanted bubble; other processes can only add to the waiting."""
    pipeline = SleepingPipeline(world, schedule, *sizes)
    for _ in range(STEPS):
        times = pipeline.step_times(world)
        if (bubble_of_times(times) or 1.0) < wanted + 0.02:
            break
    return times


@pytest.mark.slow  # five seconds, mostly asleep
@pytest.mark.parametrize(("schedule", "virtual_stages"), [("gpipe", 1), ("1f1b", 1), ("interleaved", 2)])
def test_four_ranks_whose_stages_sleep_have_the_formula_s_bubble(
    schedule: PipelineSchedule, virtual_stages: int
) -> None:
    """By formula 3 of 9 and 3 of 11."""
    microbatches = 4 if schedule == "interleaved" else 6
    wanted = bubble_share(4, microbatches, virtual_stages)
    times = run_ranks(4, sleeping_times, schedule, wanted, microbatches, virtual_stages, 0.08, 0.16)[0]
    assert bubble_of_times(times) == pytest.approx(wanted, abs=0.03)
    taken = [Pass(s.kind, s.stage, s.microbatch) for s in times[1] if s.kind in ("forward", "backward")]
    assert taken == orders(schedule, 4, microbatches, virtual_stages)[1]


BIGGER = (
    "model.hidden_size=128", "model.feed_forward_size=256", "model.attention_heads=4", "data.global_batch_size=48",
    "parallel.pipeline=2", "parallel.microbatches=4", "precision.compute=fp32", "schedule.max_steps=6",
)  # fmt: skip


def test_a_real_run_s_bubble_is_that_of_a_simulation_from_its_measured_pieces(
    tiny: Tiny, tmp_path: Path, answer: Answer
) -> None:
    log = tmp_path / "result_0.txt"
    system = tiny(*BIGGER)
    run_ranks(2, trained, system, log)
    trace = read_trace(log)
    steps = {bar.step for bar in trace.passes}
    assert steps == {3, 4, 5}
    for step in steps:
        of_step = [[span_of(bar) for bar in trace.passes if (bar.step, bar.rank) == (step, rank)] for rank in range(2)]
        assert simulated_bubble(of_step) == pytest.approx(bubble_of_times(of_step), rel=0.03)

    assert [phases.steps for phases in trace.phases] == [1] * 5  # an evaluation after each step; the first warms up
    assert all(min(phases.ms["forward"].values()) > 0 for phases in trace.phases)
    (reported,) = answer("report", log)
    run = reported["runs"][0]
    assert run["bubble"] == pytest.approx(trace.bubble())
    assert run["bubble_of_equal_stages"] == pytest.approx(1 / 5)
    events = [*json_lines(log.with_suffix("") / "trace.json")]
    kinds = {event["args"]["kind"] for event in events if event["pid"] == PIPELINE and event["ph"] == "X"}
    assert {"forward", "backward", "send forward", "receive forward", "send backward", "receive backward"} <= kinds


def span_of(bar: PassBar) -> StageTime:
    return StageTime(bar.kind, bar.step, bar.stage, bar.microbatch, bar.began_ms / 1e3, bar.ended_ms / 1e3)


def simulated_bubble(of_step: list[list[StageTime]]) -> float:
    """The bubble of a step of these passes, each delayed after its input and its rank as in the measurement."""
    passes = [[s for s in of_rank if s.kind in ("forward", "backward")] for of_rank in of_step]
    times = {Pass(s.kind, s.stage, s.microbatch): s for of_rank in passes for s in of_rank}
    handovers_s = {}
    for of_rank in passes:
        for before, after in pairwise([None, *of_rank]):
            source_stage = after.stage - 1 if after.kind == "forward" else after.stage + 1
            sources = [times.get(Pass(after.kind, source_stage, after.microbatch)), before]
            ready = max((source.ended for source in sources if source), default=after.began)
            handovers_s[after.kind, after.stage, after.microbatch] = after.began - ready
    order = [[Pass(s.kind, s.stage, s.microbatch) for s in of_rank] for of_rank in passes]
    return simulate_pipeline(
        order, lambda taken: times[taken].ended - times[taken].began, 0.0, 2, handovers_s.get
    ).bubble


def test_passes_that_were_not_timed_show_no_straggler() -> None:
    phases = StepPhases(step=9, steps=4)
    for phase, by_rank in (("data", [1.0, 1.0]), ("optimizer", [3.0, 9.0]), ("wait", [22.0, 0.0])):
        phases.ms[phase].update(enumerate(by_rank))
    assert mean_times([phases]) == {}
    phases.ms["replay"].update({0: 20.0, 1: 20.0})
    assert mean_times([phases]) != {}
