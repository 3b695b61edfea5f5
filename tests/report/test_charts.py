import math
import re
import xml.etree.ElementTree as ET

import pytest

from bertbench.report.charts import Axis, Bar, Series, bars, histogram, lines, number, powers, scatter, ticks
from bertbench.report.page import page, paragraph, section, table


def drawn(figure: str) -> ET.Element:
    return ET.fromstring(figure)


def test_ticks_are_round_and_cover_the_range() -> None:
    assert ticks(0, 1) == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    assert ticks(3, 17) == [5, 10, 15]
    assert ticks(-5e6, 2e6) == [-4e6, -2e6, 0, 2e6]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.72, "0.72"), (1234, "1,234"), (12_800, "12.8k"), (2_414_421, "2.414M"), (0, "0"), (3e9, "3G"), (-0.5, "-0.5")],
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert number(value) == text


def test_a_point_stands_where_its_axes_say() -> None:
    figure = drawn(scatter("t", [Series("a", [(0, 0), (10, 100)])], Axis("x"), Axis("y")))
    (x0, y0), (x1, y1) = [(float(c.get("cx", "")), float(c.get("cy", ""))) for c in figure.iter("circle")]
    labels = {(text.text, text.get("class")): text for text in figure.iter("text")}
    assert float(labels["10", "middle"].get("x", "")) == x1
    assert float(labels["0", "middle"].get("x", "")) == x0
    assert float(labels["100", "end"].get("y", "")) == y1 + 4
    assert float(labels["0", "end"].get("y", "")) == y0 + 4


def test_parts_of_a_bar_lie_end_to_end_and_are_as_long_as_their_values() -> None:
    figure = drawn(bars("t", [Bar("a", {"p": 1, "q": 3}), Bar("b", {"p": 2})], Axis("s")))
    (left_p, long_p), (left_q, long_q), (_, long_b) = [
        (float(r.get("x", "")), float(r.get("width", ""))) for r in figure.iter("rect")
    ]
    assert left_q == pytest.approx(left_p + long_p, abs=0.1)
    assert long_q == pytest.approx(3 * long_p, abs=0.2)
    assert long_b == pytest.approx(2 * long_p, abs=0.2)


def test_a_histogram_counts_every_value_once() -> None:
    figure = drawn(histogram("t", [("a", [0, 0, 1, 4]), ("b", [4])], Axis("x"), bins=2))
    told = [title.text for title in figure.iter("title")]
    assert told == ["a: 0 to 2: 3", "a: 2 to 4: 1", "b: 0 to 2: 0", "b: 2 to 4: 1"]


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf, 1e308, -1e308])
def test_values_that_cannot_be_drawn_are_left_out(odd: float) -> None:
    series = [Series("a", [(1, 1), (odd, 2), (2, odd)])]
    for figure in (
        lines("t", series, Axis("x"), Axis("y")),
        bars("t", [Bar("a", {"p": odd, "q": 1})], Axis("x")),
        histogram("t", [("a", [odd, 1])], Axis("x")),
    ):
        drawn(figure)
        assert not re.search("nan|inf", figure)


@pytest.mark.parametrize("points", [[], [(3, 3)], [(0, 0)], [(1, 5), (2, 5)], [(1e-300, 1e-200), (2e-300, 2e-200)]])
def test_few_and_equal_points_are_drawn(points: list[tuple[float, float]]) -> None:
    assert len(list(drawn(lines("t", [Series("a", points)], Axis("x"), Axis("y"))).iter("circle"))) == len(points)


def test_text_from_a_log_is_never_markup() -> None:
    evil = '<script>alert(1)</script>"&'
    figure = lines(evil, [Series(evil, [(1, 2), (2, 3)], [evil, evil])], Axis(evil), Axis(evil), [(evil, 3)])
    charts = bars(evil, [Bar(evil, {evil: 1}, evil)], Axis(evil)) + histogram(evil, [(evil, [1])], Axis(evil))
    whole = page(evil, section(evil, paragraph(evil), figure, charts, table([evil], [[evil]], evil)))
    assert "<script" not in whole
    drawn(figure)


@pytest.mark.parametrize(
    ("low", "high", "base", "expected"),
    [
        (8, 1024, 2, [8, 32, 128, 512, 2048]),
        (8, 256, 2, [8, 16, 32, 64, 128, 256]),
        (8, 8, 2, [8, 16]),
        (9, 15, 2, [8, 16]),
        (0.2, 17, 10, [0.1, 1, 10, 100]),
        (3, 40, 10, [2, 5, 10, 20, 50]),
        (10, 10, 10, [10, 20]),
        (1e-4, 1e3, 10, [1e-4, 1e-2, 1, 100, 1e4]),
    ],
)
def test_ticks_of_a_logarithmic_axis_are_powers_that_cover_the_range(
    low: float, high: float, base: int, expected: list[float]
) -> None:
    assert powers(low, high, base) == pytest.approx(expected)


def test_a_logarithmic_axis_shows_values_and_leaves_out_what_isn_t_positive() -> None:
    series = [Series("a", [(8, 1), (16384, 100), (0, 5), (16, -1)])]
    figure = drawn(scatter("t", series, Axis("GPUs", base=2), Axis("minutes", base=10)))
    labels = {(text.text, text.get("class")): text for text in figure.iter("text")}
    circles = [(float(c.get("cx", "")), float(c.get("cy", ""))) for c in figure.iter("circle")]
    assert len(circles) == 2
    assert float(labels["8", "middle"].get("x", "")) == circles[0][0]
    assert {"4,096", "32,768"} <= {text for text, _ in labels}  # not 32.77k, not 15
    assert float(labels["1", "end"].get("y", "")) == circles[0][1] + 4
    assert float(labels["100", "end"].get("y", "")) == circles[1][1] + 4


@pytest.mark.parametrize("high", [1, 12_345, 0.00123, 999_999_999])
def test_labels_of_ticks_stand_clear_of_the_axis_label(high: float) -> None:
    figure = drawn(lines("t", [Series("a", [(0, 0), (1, high)])], Axis("x"), Axis("y")))
    longest = max((text for text in figure.iter("text") if text.get("class") == "end"), key=lambda t: len(t.text or ""))
    begins = float(longest.get("x", "")) - 7.6 * len(longest.text or "")
    assert begins >= 12 + 13 / 2  # the upright label: its middle at 12, 13 units high
