"""A pipeline's timeline and bubble: by hand, by formula, by simulation, and in real runs."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from bertbench.common.phases import BACKWARD, FORWARD, PHASES, STAGE_WAIT
from bertbench.common.stage_spans import StageSpan
from bertbench.config.layout import Layout, PipelineSchedule, bubble_share
from bertbench.distributed.world import World
from bertbench.runs.pipeline_timeline import PipelineTimeline, add_to_trace, bubble_of_phases, bubble_of_spans, waits
from bertbench.runs.straggler import rank_times
from lab.bench.pipeline_simulation import Pass, orders, simulate_pipeline
from lab.bench.sleeping_pipeline import SleepingPipeline
from tests.conftest import Answer, Printed, Tiny
from tests.ranks import run_ranks
from tests.runs.test_flop_rate import trained
from tests.runs.written import leave, row

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


def span(kind: Any, stage: int, microbatch: int, began: float, ended: float) -> StageSpan:
    return StageSpan(kind, 3, stage, microbatch, began, ended)


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
TIMELINE = PipelineTimeline(TWO_STAGES, Layout(1, pipeline=2), 2, unix_s=1000.0)


def test_the_bubble_is_the_share_of_the_step_without_passes() -> None:
    """From 10 to 18 s: rank 0 computes 4.5 of 8 s, rank 1 5 of 8 s."""
    assert bubble_of_spans(TWO_STAGES) == pytest.approx(1 - 9.5 / 16)
    assert [(wait.began, wait.ended) for wait in waits(TWO_STAGES[0])] == [(12.0, 14.5), (16.0, 17.0)]


def test_the_bubble_of_phases_is_that_of_the_first_stage_s_time() -> None:
    """Data 2 x pipeline 2: first stages take 10 and 12 ms of which they wait 4 and 2; the others compute 6 and 7."""
    ranks_ms = torch.zeros(4, len(PHASES))
    forward, backward, stage_wait = (PHASES.index(phase) for phase in (FORWARD, BACKWARD, STAGE_WAIT))
    ranks_ms[:, forward] = torch.tensor([2.0, 4.0, 2.0, 3.0])
    ranks_ms[:, backward] = torch.tensor([4.0, 6.0, 4.0, 4.0])
    ranks_ms[:, stage_wait] = torch.tensor([4.0, 2.0, 1.0, 1.0])
    layout = Layout(data=2, pipeline=2)
    assert bubble_of_phases(ranks_ms, layout) == pytest.approx(1 - (6 + 10 + 6 + 7) / 4 / 11)
    assert bubble_of_phases(torch.zeros(4, len(PHASES)), layout) is None


def test_a_trace_has_a_track_of_passes_and_one_of_messages_for_each_rank() -> None:
    events = [event for event in TIMELINE.trace_events() if event["ph"] == "X"]
    by_track = {track: [event["args"]["kind"] for event in events if event["tid"] == track] for track in range(4)}
    assert by_track[0] == ["forward", "forward", "backward", "backward", "wait", "wait"]
    assert by_track[3] == ["receive forward", "send backward"]
    (sent,) = [event for event in events if event["args"]["kind"] == "send forward"]
    assert (sent["ts"], sent["dur"]) == pytest.approx((1e6, 0.5e6))  # to the pass that uses it
    read_again = PipelineTimeline.of_record(json.loads(json.dumps(TIMELINE.record())))
    assert [*read_again.trace_events()] == [
        {**event, **{key: pytest.approx(event[key]) for key in ("ts", "dur") if key in event}}
        for event in TIMELINE.trace_events()
    ]


STEPS = 6


def test_a_profile_s_trace_gets_the_pipeline_s_steps_at_their_time(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    trace.write_text(json.dumps({"baseTimeNanoseconds": 900 * 10**9, "traceEvents": [{"name": "aten::mm"}]}))
    add_to_trace(trace, tmp_path)
    assert len(json.loads(trace.read_text())["traceEvents"]) == 1, "a run without a pipeline has nothing to add"
    (tmp_path / "pipeline.json").write_text(json.dumps(TIMELINE.record()))
    add_to_trace(trace, tmp_path)
    first, *added = json.loads(trace.read_text())["traceEvents"]
    assert first == {"name": "aten::mm"}
    # the clock read 0 at 1,000 s since 1970, and the first pass began at 10 s
    assert min(event["ts"] for event in added if event["ph"] == "X") == pytest.approx(110e6)


def sleeping_spans(world: World, schedule: PipelineSchedule, wanted: float, *sizes: Any) -> list[list[StageSpan]]:
    """The spans of the first step within .02 of the wanted bubble; other processes can only add to the waiting."""
    pipeline = SleepingPipeline(world, schedule, *sizes)
    for _ in range(STEPS):
        spans = pipeline.step_spans(world)
        if (bubble_of_spans(spans) or 1.0) < wanted + 0.02:
            break
    return spans


@pytest.mark.slow  # five seconds, mostly asleep
@pytest.mark.parametrize(("schedule", "virtual_stages"), [("gpipe", 1), ("1f1b", 1), ("interleaved", 2)])
def test_four_ranks_whose_stages_sleep_have_the_formula_s_bubble(
    schedule: PipelineSchedule, virtual_stages: int
) -> None:
    """By formula 3 of 9 and 3 of 11."""
    microbatches = 4 if schedule == "interleaved" else 6
    wanted = bubble_share(4, microbatches, virtual_stages)
    spans = run_ranks(4, sleeping_spans, schedule, wanted, microbatches, virtual_stages, 0.08, 0.16)[0]
    assert bubble_of_spans(spans) == pytest.approx(wanted, abs=0.03)
    taken = [Pass(s.kind, s.stage, s.microbatch) for s in spans[1] if s.kind in ("forward", "backward")]
    assert taken == orders(schedule, 4, microbatches, virtual_stages)[1]


BIGGER = (
    "model.hidden_size=128", "model.feed_forward_size=256", "model.attention_heads=4", "data.global_batch_size=48",
    "parallel.pipeline=2", "parallel.microbatches=4", "precision.compute=fp32", "schedule.max_steps=6",
)  # fmt: skip


def test_a_real_run_s_bubble_is_that_of_a_simulation_from_its_measured_pieces(
    tiny: Tiny, tmp_path: Path, answer: Answer, printed: Printed
) -> None:
    log = tmp_path / "result_0.txt"
    system = tiny(*BIGGER)
    run_ranks(2, trained, system, log)
    content = json.loads((log.with_suffix("") / "pipeline.json").read_text())
    timeline = PipelineTimeline.of_record(content)
    steps = {span.step for span in timeline.spans[0]}
    assert steps == {3, 4, 5}
    assert content["bubble_of_equal_stages"] == pytest.approx(1 / 5)
    for step in steps:
        of_step = [[s for s in of_rank if s.step == step] for of_rank in timeline.spans]
        assert simulated_bubble(of_step) == pytest.approx(bubble_of_spans(of_step), rel=0.03)

    rows = [json.loads(line) for line in (log.with_suffix("") / "metrics.jsonl").read_text().splitlines()]
    assert all(min(line["ranks_ms"]["forward"]) > 0 for line in rows[1:])
    (reported,) = answer("report", log)
    run = reported["runs"][0]
    assert run["bubble"] == pytest.approx(sum(line["bubble"] for line in rows[1:]) / len(rows[1:]))
    assert run["bubble_of_equal_stages"] == pytest.approx(1 / 5)
    assert f"bubble {run['bubble']:.1%} of its time; it would be 20.0% if stages were equal" in printed("report", log)
    page = tmp_path / "page.html"
    printed("report", log, "--html", page)
    assert page.read_text().count("<figcaption>A step of the pipeline, ") == 1
    trace = json.loads((log.with_suffix("") / "trace.json").read_text())["traceEvents"]
    kinds = {event["args"]["kind"] for event in trace if event["ph"] == "X"}
    assert {"forward", "backward", "send forward", "receive forward", "send backward", "receive backward"} <= kinds


def simulated_bubble(of_step: list[list[StageSpan]]) -> float:
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


def test_passes_that_were_not_timed_show_no_straggler(tmp_path: Path, answer: Answer) -> None:
    untimed = {"data": [1, 1], "forward": [0, 0], "backward": [0, 0], "optimizer": [3, 9], "wait": [22, 0]}
    assert rank_times({"ranks_ms": untimed}) == {}
    assert rank_times({"ranks_ms": {**untimed, "replay": [20, 20]}}) != {}
    log = leave(tmp_path, 0, 100, metrics=row(1, ranks_ms=untimed))
    (content,) = answer("report", log)
    assert content["runs"][0]["straggler"] is None
