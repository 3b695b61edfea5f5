"""trace.json: an array that is never closed, to which all attempts of a run append, and which a reader takes apart."""

import json
from pathlib import Path
from typing import Any

import pytest

from bertbench.common.phases import PHASES
from bertbench.config.layout import Layout
from bertbench.runs.straggler import find_straggler, mean_times
from bertbench.runs.trace import Trace
from bertbench.runs.trace_format import RUN, STEPS
from bertbench.runs.trace_reader import read_trace
from tests.conftest import Captured


def phases_ms(**ms_by_rank: list[float]) -> dict[str, list[float]]:
    return {phase: ms_by_rank.get(phase, [0.0, 0.0]) for phase in PHASES}


def written(folder: Path) -> list[dict[str, Any]]:
    """Return the events of a trace, as a strict parser reads them once the array is closed."""
    text = (folder / "result_0" / "trace.json").read_text()
    assert text.startswith("[\n")
    return json.loads(f"{text.rstrip().removesuffix(',')}]")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (tmp_path / "result_0").mkdir()
    return tmp_path / "result_0.txt"


def test_events_that_don_t_fit_on_the_disk_raise_one_warning(capsys: Captured) -> None:
    with Trace(Path("/dev/full")) as trace:
        trace.begin("training")
        trace.ended()
    said = capsys.readouterr().err
    assert said.count("warning: /dev/full: cannot be written (No space left on device)") == said.count("\n") == 1
    assert "the run continues without it" in said


def test_each_activity_of_a_run_ends_as_the_next_begins_also_over_two_attempts(log: Path) -> None:
    for _ in range(2):  # the second attempt of a run that was killed
        with Trace(log.with_suffix("") / "trace.json") as trace:
            trace.attempt()
            trace.begin("training")
    events = [event for event in written(log.parent) if event["pid"] == RUN and event["ph"] != "M"]
    assert [event["ph"] for event in events] == ["B", "E", "B", "E", "B", "E", "B"]
    assert [activity.name for activity in read_trace(log).activities] == ["start-up", "training"] * 2


def test_a_rank_s_phases_follow_each_other_and_are_read_back_by_rank(log: Path) -> None:
    with Trace(log.with_suffix("") / "trace.json") as trace:
        trace.phases(40, 8, phases_ms(data=[1.0, 0.0], forward=[10.0, 12.0], wait=[3.0, 2.0]), None)
    spans = [event for event in written(log.parent) if event["pid"] == STEPS and event["ph"] == "X"]
    assert [(span["tid"], span["name"], span["dur"]) for span in spans] == [
        (0, "data", 1e3), (0, "forward", 1e4), (0, "wait", 3e3), (1, "forward", 1.2e4), (1, "wait", 2e3),
    ]  # fmt: skip
    first, second, third = (span["ts"] - spans[0]["ts"] for span in spans[:3])
    assert (first, second, third) == (0, pytest.approx(1e3, abs=1), pytest.approx(1.1e4, abs=1))
    (phases,) = read_trace(log).phases
    assert (phases.step, phases.steps, phases.ms["forward"]) == (40, 8, {0: 10.0, 1: 12.0})
    assert phases.ms["data"] == {0: 1.0}


def test_means_are_over_steps_and_the_bubble_is_that_of_the_first_stage_s_time(log: Path) -> None:
    """Over 1 step 6 of 8 ms and 4 ms compute, over 3 steps 6 of 6 ms and 6 ms do: 0.375 and 0."""
    layout = Layout(data=1, pipeline=2)
    with Trace(log.with_suffix("") / "trace.json") as trace:
        trace.phases(1, 1, phases_ms(forward=[6.0, 4.0], stage_wait=[2.0, 1.0]), layout)
        trace.phases(4, 3, phases_ms(forward=[6.0, 6.0]), layout)
    trace_read = read_trace(log)
    assert trace_read.stages == {0: 0, 1: 1}
    assert trace_read.bubble() == pytest.approx(0.375 / 4)
    assert mean_times(trace_read.phases)["forward"] == pytest.approx([6.0, 5.5])
    assert find_straggler(mean_times(trace_read.phases)) is None
    assert mean_times(read_trace(log.with_name("result_1.txt")).phases) == {}


def test_a_run_that_goes_on_with_other_ranks_is_judged_by_its_last_ones(log: Path) -> None:
    with Trace(log.with_suffix("") / "trace.json") as trace:
        trace.phases(2, 1, {phase: [9.0] * 4 for phase in PHASES}, None)
        trace.phases(3, 1, phases_ms(forward=[1.0, 2.0]), None)
    assert mean_times(read_trace(log).phases)["forward"] == [1.0, 2.0]
