import math
import re
import xml.etree.ElementTree as ET

import pytest

from bertbench.report.charts import Axis, axis_number, lines, scatter, ticks
from bertbench.report.page import html_table, page, paragraph, section


def places(figure: str, kind: str, *names: str) -> list[list[float]]:
    """The numbers in these attributes of each element of a kind."""
    return [[float(one.get(name, "")) for name in names] for one in ET.fromstring(figure).iter(kind)]


def labels(figure: str) -> dict[tuple[str | None, str | None], ET.Element]:
    return {(text.text, text.get("class")): text for text in ET.fromstring(figure).iter("text")}


def curve(*points: tuple[float, float]) -> str:
    return lines("t", {"a": points}, Axis("x"), Axis("y"))


def test_ticks_are_round_and_cover_the_range() -> None:
    assert ticks(0, 1) == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    assert ticks(3, 17) == [0, 5, 10, 15, 20]
    assert ticks(-5e6, 2e6) == [-6e6, -4e6, -2e6, 0, 2e6]
    assert ticks(3, 4.2, least_step=1) == [3, 4, 5]


def test_numbers_are_short() -> None:
    texts = {0.72: "0.72", 1234: "1,234", 12_800: "12.8k", 2_414_421: "2.414M", 0: "0", 3e9: "3G", -0.5: "-0.5"}
    assert {value: axis_number(value) for value in texts} == texts


def test_a_point_is_drawn_where_its_axes_say() -> None:
    figure = curve((0, 0), (10, 100))
    for (x, y), tick_x, tick_y in zip(places(figure, "circle", "cx", "cy"), ("0", "10"), ("0", "100"), strict=True):
        assert float(labels(figure)[tick_x, "middle"].get("x", "")) == x
        assert float(labels(figure)[tick_y, "end"].get("y", "")) == y + 4


@pytest.mark.parametrize("odd", [math.nan, math.inf, -1e308])
@pytest.mark.parametrize("points", [[], [(3, 3)], [(0, 0)], [(1, 5), (2, 5)], [(1e-300, 1e-200), (2e-300, 2e-200)]])
def test_few_and_equal_points_are_drawn_and_no_others(points: list[tuple[float, float]], odd: float) -> None:
    drawn = curve(*points, (odd, 2), (2, odd))
    assert len(places(drawn, "circle")) == len(points)
    assert not re.search("nan|inf", drawn)


def test_text_from_a_log_is_never_markup() -> None:
    evil = '<script>alert(1)</script>"&'
    figure = lines(evil, {evil: [(1, 2), (2, 3)]}, Axis(evil), Axis(evil), (evil, 3))
    assert "<script" not in page(evil, section(evil, paragraph(evil), figure, html_table([evil], [[evil]], evil)))
    ET.fromstring(figure)
    assert paragraph("`a<b` lists `c`") == "<p><code>a&lt;b</code> lists <code>c</code></p>\n"


def test_a_column_with_a_text_of_more_than_forty_characters_wraps() -> None:
    table = html_table(["run", "reason"], [["one", 40 * "a"], ["two", "b" + 40 * "a"]])
    assert table.count('<td class="text">') == 2
    assert '<th scope="col" class="text">reason</th>' in table
    assert 'class="text"' not in html_table(["run", "reason"], [["one", 40 * "a"]])


def test_a_logarithmic_axis_shows_powers_of_two_and_leaves_out_what_isn_t_positive() -> None:
    figure = scatter("t", {"a": [(16, 1), (8192, 100), (0, 5)]}, Axis("GPUs", log2=True), Axis("y"))
    shown = [text for text, kind in labels(figure) if kind == "middle"]
    assert shown == ["16", "64", "256", "1,024", "4,096", "16,384"]  # in full
    (first,), _ = places(figure, "circle", "cx")
    assert float(labels(figure)["16", "middle"].get("x", "")) == first


@pytest.mark.parametrize("high", [1, 0.00123, 999_999_999])
def test_labels_of_ticks_stand_clear_of_the_edge_and_of_the_axis_label(high: float) -> None:
    found = labels(curve((0, 0), (1, high)))
    ticks_up = [(label, text) for (label, kind), text in found.items() if kind == "end" and label != "x"]
    assert min(float(text.get("x", "")) - 7.6 * len(label or "") for label, text in ticks_up) >= 0
    # letters of 13 units reach 10 above their baseline
    assert min(float(text.get("y", "")) for _, text in ticks_up) - 10 >= float(found["y", "start"].get("y", ""))


@pytest.mark.parametrize("label", ["load efficiency: mean rank / slowest rank", "letters " * 20])
def test_an_axis_label_is_never_clipped(label: str) -> None:
    figure = lines("t", {"a": [(0, 0), (1, 1)]}, Axis(label), Axis(label))
    for (text, kind), drawn in labels(figure).items():
        if kind == "start":
            assert float(drawn.get("x", "")) + 7.6 * len(text or "") <= 420 + 2
            assert text == label or (text or "").endswith("...")


def test_no_two_of_thirty_series_look_alike() -> None:
    names = [f"method {number}" for number in range(30)]
    figure = lines(
        "t",
        {name: [(0, number), (1, number)] for number, name in enumerate(names)},
        Axis("x"),
        Axis("y"),
    )
    looks = {drawn.get("class") for drawn in ET.fromstring(figure).iter("path") if drawn.find("title") is not None}
    assert len(looks) == 30
    assert len({drawn.get("class") for drawn in ET.fromstring(figure).iter("i")}) == 30
    style = page("t")
    assert len({*re.findall(r"svg \.pattern-\d \{ stroke-dasharray: ([^;]*);", style)}) == 2  # and whole lines
