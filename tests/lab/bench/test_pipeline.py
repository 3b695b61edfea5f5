"""`lab pipeline`: what it measures on two ranks, and what it simulates beyond."""

from collections.abc import Sequence

import pytest

from bertbench.config.layout import bubble_share
from lab.bench.pipeline import SimulatedSchedule, simulate_beyond
from tests.conftest import Answer


@pytest.fixture(scope="module")
def simulated() -> Sequence[SimulatedSchedule]:
    return simulate_beyond()


def test_without_latency_all_schedules_have_the_formula_s_bubble_and_interleaving_gains(
    simulated: Sequence[SimulatedSchedule],
) -> None:
    rows = [row for row in simulated if row.message_us == 0]
    assert all(row.bubble == row.by_formula for row in rows)
    (interleaved,) = [row for row in rows if row.schedule == "interleaved" and row.ranks == 8]
    # work is 1 - bubble of a step: 32 of 39 turns, and 64 of 71 half turns
    assert interleaved.one_f_one_b_is == pytest.approx((39 / 32) / (71 / 64), abs=1e-4)


def test_messages_cost_1f1b_more_than_gpipe(simulated: Sequence[SimulatedSchedule]) -> None:
    bubbles = {row.schedule: row.bubble for row in simulated if (row.ranks, row.message_us) == (8, 1000)}
    assert bubble_share(8, 32) < bubbles["gpipe"] < bubbles["1f1b"]


@pytest.mark.slow
def test_three_schedules_are_measured_in_pairs(answer: Answer) -> None:
    content = answer("lab", "pipeline", "--rounds", 2, "--microbatches", 4, "--forward-ms", 20)
    assert [row["schedule"] for row in content["measured"]] == ["gpipe", "1f1b", "interleaved"]
    assert all(row["step_ms"] > 4 * 60 for row in content["measured"])  # four microbatches of 20 and 40 ms
    assert all(row["bubble"] > row["by_formula"] - 0.02 for row in content["measured"])
