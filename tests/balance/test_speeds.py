"""Speeds of ranks over a run's steps, and assignments by speed small enough to work out by hand."""

import numpy as np
import pytest

from bertbench.balance.cost import CostModel
from bertbench.balance.speeds import Speeds, assign_by_speed

LINEAR = CostModel(1.0, 0.0).of_length


def test_work_is_assigned_in_proportion_to_speed() -> None:
    """Ranks of 3 : 1: 9 and 7 to the first (then done at 21.3 of 16 / 0.75), 5 to the other (at 20, not at 28).

    Then 4 and 3 to the first (at 26.7 and 30.7, not at 36 and 32), 2 to the other (at 28, not at 33.3).
    """
    lengths = np.array([3, 9, 2, 5, 7, 4])
    assert assign_by_speed(lengths, np.array([0.75, 0.25]), LINEAR).tolist() == [0, 0, 1, 1, 0, 0]


@pytest.mark.parametrize("speeds", [(1.0, 1000.0), (0.001, 5.0, 1.0, 1e-9)])
def test_every_sample_goes_to_one_rank_and_every_rank_has_one(speeds: tuple[float, ...]) -> None:
    lengths = np.arange(13, 13 + 4 * len(speeds))
    ranks = assign_by_speed(lengths, np.array(speeds) / sum(speeds), LINEAR)
    counts = np.bincount(ranks, minlength=len(speeds))
    assert counts.min() == 1
    assert counts.sum() == len(lengths)


@pytest.fixture
def changing() -> Speeds:
    """Speeds of 1 : 1, from step 5 on of 1 : 3, and from step 9 on of 1 : 4."""
    speeds = Speeds((1.0, 1.0))
    speeds.change(5, (1.0, 3.0))
    speeds.change(9, (1.0, 4.0))
    return speeds


def test_speeds_apply_from_their_step_on(changing: Speeds) -> None:
    assert [changing.at(step).tolist() for step in (4, 5, 9)] == [[0.5, 0.5], [0.25, 0.75], [0.2, 0.8]]


def test_a_resumed_run_uses_the_speeds_of_the_steps_ahead(changing: Speeds) -> None:
    resumed = Speeds((1.0, 1.0))
    resumed.restore(changing.since(7))
    assert [resumed.at(step).tolist() for step in (7, 9)] == [[0.25, 0.75], [0.2, 0.8]]


def test_a_run_that_resumes_on_another_number_of_ranks_keeps_its_new_speeds(changing: Speeds) -> None:
    resumed = Speeds((1.0, 1.0, 2.0))
    resumed.restore(changing.since(7))
    assert resumed.at(9).tolist() == [0.25, 0.25, 0.5]
