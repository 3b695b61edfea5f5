"""`lab layout`: steps put together again from times of their parts, and the command itself."""

import json

import pytest

from bertbench.cli import main
from bertbench.parallel.theory import bubble
from lab.bench.layout import Action, Timed, replay


def order(text: str, stage: int, seconds: float = 1.0) -> list[Timed]:
    """`F0 B0`: a forward, then a backward pass of microbatch 0."""
    return [(Action(word[0] == "B", stage, int(word[1:])), seconds) for word in text.split()]


def test_a_replayed_step_of_equal_stages_idles_as_the_formula_says() -> None:
    gpipe = [order("F0 F1 B0 B1", 0), order("F0 F1 B0 B1", 1)]
    one_f_one_b = [order("F0 F1 B0 B1", 0), order("F0 B0 F1 B1", 1)]
    for orders in (gpipe, one_f_one_b):
        assert replay(orders, 2) == 6  # 4 passes a rank, and one stage's forward and backward pass to wait for
        assert replay(orders, 2) / 4 - 1 == bubble(2, 2)


def test_a_replayed_step_waits_for_the_slower_stage() -> None:
    # the second stage takes twice as long: it begins after 1 s, works 8 s, and the first still has a backward pass
    assert replay([order("F0 F1 B0 B1", 0), order("F0 B0 F1 B1", 1, 2.0)], 2) == 10


@pytest.mark.slow
def test_the_command_measures_both_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "layout", "--steps", "1", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert all(row["counted"] == row["formula"] for row in told["bytes"])
    assert {row["dimension"] for row in told["bytes"]} == {"data", "tensor", "pipeline", "tied words"}
    for pipeline in (2, 4):
        rows = [row for row in told["bubbles"] if row["pipeline"] == pipeline and row["schedule"] == "1f1b"]
        assert rows[0]["replayed"] > rows[-1]["replayed"]  # more microbatches, less idle
