"""Tables in a terminal and on pages."""

from typing import NamedTuple

from bertbench.common.tables import markdown, table_lines


class Row(NamedTuple):
    name: str
    seconds: float | None


def test_a_table_aligns_its_first_words_left_and_numbers_right_and_shows_what_is_missing() -> None:
    rows = [Row("long name", 1234.5), Row("b", None)]
    assert table_lines(rows, {"program": "{0.name}", "seconds": "{0.seconds:,.1f}"}) == [
        "program    seconds",
        "long name  1,234.5",
        "b                -",
    ]


def test_a_bar_in_a_cell_does_not_end_it() -> None:
    assert markdown(["a", "b"], [["x|y", "1"]]) == "| a | b |\n| --- | --- |\n| x&#124;y | 1 |"
