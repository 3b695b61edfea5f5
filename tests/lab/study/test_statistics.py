"""What a study says of its samples, worked out by hand."""

import math

import pytest

from lab.study.intervals import compare, half_interval

SAMPLES = {"a": [10, 12, 14], "b": [30, 34, 35], "c": [None, 20, None]}
ROWS = [
    {"arm": arm, "seed": seed, "samples_to_target": samples}
    for arm, own in SAMPLES.items()
    for seed, samples in enumerate(own, start=1)
]


def test_a_mean_comes_with_students_interval() -> None:
    # standard deviation 2 over 3 seeds; t of 2 degrees of freedom at 0.975 is 4.302653
    assert half_interval([10, 12, 14]) == pytest.approx(4.302653 * 2 / math.sqrt(3), rel=1e-6)
    assert half_interval([20]) is None


def test_a_difference_is_taken_seed_by_seed_and_shown_only_by_an_interval_without_zero() -> None:
    fewer, more = compare(ROWS, "a", "b"), compare(ROWS, "b", "a")
    assert fewer is not None
    assert more is not None
    # -20, -22, -21: standard deviation 1
    half = 4.302653 / math.sqrt(3)
    apart = fewer.difference
    assert (apart.mean, apart.low, apart.high) == pytest.approx((-21, -21 - half, -21 + half), rel=1e-6)
    assert (fewer.reference, fewer.seeds) == (33, 3)
    assert (fewer.shares[0], fewer.half_width) == pytest.approx((-21 / 33, half / 33))
    assert (apart.verdict, more.difference.verdict) == ("fewer samples", "more samples")
    assert compare(ROWS, "a", "c") is None, "c reached the target with one seed only"
    near = [*ROWS[:3], *({"arm": "b", "seed": seed, "samples_to_target": n} for seed, n in ((1, 9), (2, 12), (3, 18)))]
    overlapping = compare(near, "a", "b")
    assert overlapping is not None
    assert overlapping.difference.verdict == "no difference shown"
