"""What a study says of its samples, worked out by hand."""

import json
import math
from pathlib import Path

import pytest

from lab.study.compare import Row, differences, summarize
from lab.study.definition import Definition
from lab.study.trial import tuned_file

DEFINITION = Definition.model_validate(
    {
        "question": "which?",
        "system": "cpu_study",
        "arms": {"a": {}, "b": {}, "c": {}},
        "space": {"optimizer.learning_rate": {"low": 0.1, "high": 1.0}},
        "tuning_trials": 2,
        "comparisons": ({"arm": "a", "against": "b"}, {"arm": "b", "against": "a"}, {"arm": "a", "against": "c"}),
    }
)
SAMPLES = {"a": [10, 12, 14], "b": [30, 34, 35], "c": [None, 20]}
ROWS = [
    Row(arm, seed, samples, samples is not None, 0.5 * seed)
    for arm, own in SAMPLES.items()
    for seed, samples in enumerate(own, start=1)
]


def test_a_mean_comes_with_students_interval_over_the_seeds_that_reached_the_target(tmp_path: Path) -> None:
    for arm in SAMPLES:
        tuned_file(tmp_path, arm).parent.mkdir(exist_ok=True)
        tuned_file(tmp_path, arm).write_text(json.dumps({"optimizer": {"learning_rate": 0.25}}))
    first, _, last = summarize(DEFINITION, tmp_path, ROWS)
    assert (first.mean, first.seeds, first.reached, first.clipped_steps) == (12, 3, 3, 1)
    # standard deviation 2 over 3 seeds; t of 2 degrees of freedom at 0.975 is 4.302653
    assert first.half_interval == pytest.approx(4.302653 * 2 / math.sqrt(3), rel=1e-6)
    assert first.values == {"optimizer.learning_rate": 0.25}
    assert (last.mean, last.seeds, last.reached, last.half_interval) == (20, 2, 1, None)


def test_a_difference_is_taken_seed_by_seed_and_shown_only_by_an_interval_without_zero() -> None:
    fewer, more = differences(DEFINITION, ROWS)  # c reached the target with one seed only
    # -20, -22, -21: standard deviation 1
    half = 4.302653 / math.sqrt(3)
    assert (fewer.mean, fewer.low, fewer.high) == pytest.approx((-21, -21 - half, -21 + half), rel=1e-6)
    assert (fewer.verdict, more.verdict) == ("fewer samples", "more samples")
    overlapping = [
        *ROWS[:3],
        *(Row("b", seed, samples, True, 0.0) for seed, samples in enumerate((9, 12, 18), start=1)),
    ]
    assert differences(DEFINITION, overlapping)[0].verdict == "no difference shown"
