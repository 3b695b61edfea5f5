"""The figures of a report: which points are drawn, and that nothing in them comes from a log."""

import json
import math
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from bertbench.runs.figures import COLOURS, curves, drawable_points, look, pipeline_step
from bertbench.runs.page import figure, html_table, legend, page, paragraph, section
from bertbench.runs.trace_format import PIPELINE
from bertbench.runs.trace_reader import PassBar, read_trace


def drawn(svg: str, colour: str) -> int:
    """The number of lines in a colour."""
    return sum(f"stroke: {colour}" in (path.get("style") or "") for path in ET.fromstring(svg).iter() if path.get("d"))


@pytest.mark.parametrize("points", [[(3, 3)], [(1, 5), (2, 5)], [(1e-300, 1e-200), (2e-300, 2e-200)]])
def test_few_and_equal_points_are_drawn_and_no_others(points: list[tuple[float, float]]) -> None:
    series = [[*points, *((odd, 2) for odd in (math.nan, math.inf, -1e308)), (2, math.inf)]]
    assert drawable_points(series) == len(points)
    svg = curves(series, "x", "y")
    assert svg == curves([points], "x", "y")
    assert not re.search(r"\b(nan|inf)\b", svg)


def test_a_run_without_points_keeps_the_looks_of_the_others() -> None:
    svg = curves([[], [(1, 2), (2, 3)]], "step", "loss")
    assert (drawn(svg, COLOURS[0]), drawn(svg, COLOURS[1])) == (0, 2)  # the line, and its markers


def test_no_two_of_thirty_runs_look_alike() -> None:
    looks = {look(index) for index in range(30)}
    assert len(looks) == 30
    names = legend([(f"result_{index}", look(index)) for index in range(30)])
    assert len({*re.findall(r'style="([^"]*)"', names)}) == 30


def luminance(colour: str) -> float:
    """Relative luminance of #rrggbb (WCAG 2.1)."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("colour", COLOURS)
def test_a_colour_stands_out_from_white(colour: str) -> None:
    assert 1.05 / (luminance(colour) + 0.05) >= 3


def pass_of(track: int, kind: str, step: int, stage: int, began_ms: Any, length_ms: float) -> dict[str, Any]:
    """The event of a pass of the first microbatch."""
    details = {"kind": kind, "step": step, "stage": stage, "microbatch": 0}
    times = {"ts": 1e3 * began_ms, "dur": 1e3 * length_ms}
    return {"ph": "X", "name": kind, "pid": PIPELINE, "tid": track, **times, "args": details}


def test_the_first_step_of_a_pipeline_has_a_bar_for_each_pass(tmp_path: Path) -> None:
    events = [
        pass_of(0, "forward", 3, 0, 5.0, 2.0),
        pass_of(2, "backward", 3, 1, 7.0, 2.5),
        pass_of(1, "send forward", 3, 0, 7.0, 2.0),
        pass_of(0, "forward", 4, 0, 20.0, 1.0),
        pass_of(0, "forward", 3, 0, 5.0, 2.0) | {"ts": "x"},
        {"pid": PIPELINE, "args": 7},
    ]
    (tmp_path / "result_0").mkdir()
    (tmp_path / "result_0" / "trace.json").write_text("".join(f"{json.dumps(event)},\n" for event in [*events, 7]))
    bars = read_trace(tmp_path / "result_0.txt").first_step()
    assert bars == [PassBar(0, "forward", 3, 0, 0, 5.0, 7.0), PassBar(1, "backward", 3, 1, 0, 7.0, 9.5)]
    assert "<svg" in pipeline_step(bars)
    assert read_trace(tmp_path / "result_1.txt").first_step() == []


def test_text_from_a_log_is_never_markup() -> None:
    evil = '<script>alert(1)</script>"&'
    parts = [
        paragraph(evil), html_table([evil], [[evil]], evil), figure(evil, "<svg/>"),
        legend([(evil, look(0)), (evil, look(1))]),
    ]  # fmt: skip
    text = page(evil, section(evil, *parts))
    assert "<script" not in text
    assert paragraph("`a<b` lists `c`") == "<p><code>a&lt;b</code> lists <code>c</code></p>\n"
