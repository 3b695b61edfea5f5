"""`bertbench compare`: what differs between two sets of runs, and which differences chance does not explain."""

import json
import math
import warnings
from pathlib import Path

import pytest
from scipy import stats

from bertbench.runs.comparison import Estimate, Ratio, measured
from tests.compliance.logs import RESULTS, closed, write
from tests.compliance.mutations import setting
from tests.compliance.packages import run_log
from tests.conftest import Answer, Printed
from tests.runs.test_settings import config
from tests.runs.written import leave


def test_the_interval_of_a_ratio_is_welchs_on_logarithms() -> None:
    a, b = [10.0, 12.0, 11.0, 13.0], [5.0, 6.0, 5.5]
    found = measured("time", a, b)
    # Student's t of 3 degrees of freedom, times sqrt(variance 5/3 / 4 runs)
    assert found.a == Estimate(11.5, pytest.approx(3.182446305 * math.sqrt(5 / 3 / 4)), runs=4)
    welch = stats.ttest_ind([math.log(x) for x in b], [math.log(x) for x in a], equal_var=False)
    interval = welch.confidence_interval(0.95)
    means = math.prod(b) ** (1 / 3) / math.prod(a) ** (1 / 4)
    assert list(vars(found.ratio).values()) == pytest.approx([means, math.exp(interval.low), math.exp(interval.high)])


def test_one_run_per_side_has_no_interval_and_equal_runs_have_one_of_width_zero() -> None:
    found = measured("time", [10.0], [5.0, 6.0])
    assert found.a == Estimate(10.0, None, runs=1)
    assert (found.ratio.low, found.ratio.high) == (None, None)
    assert measured("time", [10.0, 10.0], [5.0, 5.0]).ratio == Ratio(*[pytest.approx(0.5)] * 3)


@pytest.fixture
def sides(tmp_path: Path) -> tuple[str, str]:
    """B has another rate, takes half as long, and misses its target once."""
    for letter, rate, seconds in (("a", 1e-3, (100, 104, 96)), ("b", 2e-3, (50, 52, 48))):
        folder = tmp_path / letter
        for number, one in enumerate(seconds):
            log = run_log("open", evaluations=2 if letter == "a" else 1, seconds=one, seed=number)
            leave(folder, number, one, config(rate), {"commit": letter * 10, "seed": number}, log)
    missed = run_log("open", evaluations=1, seconds=70, seed=9, status="aborted")
    leave(tmp_path / "b", 3, 70, config(2e-3), {"commit": "b" * 10}, missed)
    return str(tmp_path / "a"), str(tmp_path / "b")


def test_two_sets_of_runs_side_by_side(sides: tuple[str, str], answer: Answer, printed: Printed) -> None:
    found = answer("compare", *sides)
    assert (found["a"]["reached"], found["b"]["reached"], len(found["b"]["runs"])) == (3, 3, 4)
    assert found["configuration"] == [
        {"name": "optimizer.learning_rate", "a": ["0.001"], "b": ["0.002"]},
        {"name": "commit", "a": ["aaaaaaa"], "b": ["bbbbbbb"]},
    ]
    time = found["measures"][0]
    assert (time["a"]["mean"], time["b"]["mean"], time["b"]["runs"]) == (100, 50, 3)  # the miss is in no mean
    assert time["ratio"]["ratio"] == pytest.approx(0.5)
    assert 0.4 < time["ratio"]["low"] < 0.5 < time["ratio"]["high"] < 0.6
    assert found["conclusion"].startswith("B takes 0.500 times A's time to target, 95 % interval ")
    shown = printed("compare", *sides)
    assert "(3 of 4 runs reached the target)" in shown
    assert "optimizer.learning_rate  0.001    0.002" in shown
    assert "100.0 ± 9.9" in shown  # t of 2 degrees of freedom, 4.303, times 4 / sqrt(3)


def test_logs_of_any_program_are_compared_by_their_values_and_descriptions(tmp_path: Path, answer: Answer) -> None:
    other = setting("opt_base_learning_rate", 4.25e-4)(setting("max_sequence_length", 512.0)(closed()))
    sides = [tmp_path / letter / "results" / "toy" / "bert" / "result_0.txt" for letter in "ab"]
    for path, records, framework in zip(sides, (closed(), other), ("PyTorch 2.1", "PyTorch 2.13"), strict=True):
        write(path, [record for record in records if path != sides[1] or record["key"] != "opt_epsilon"])
        write(path.parents[3] / "systems" / "toy.json", json.dumps({"framework": framework, "cooling": "air"}))
    assert answer("compare", *(path.parent for path in sides))["configuration"] == [
        {"name": "opt_base_learning_rate", "a": ["0.003"], "b": ["0.000425"]},
        {"name": "framework", "a": ["PyTorch 2.1"], "b": ["PyTorch 2.13"]},
        {"name": "opt_epsilon", "a": ["1e-08"], "b": []},
    ]


def test_the_same_runs_show_no_difference(printed: Printed) -> None:
    shown = printed("compare", RESULTS, RESULTS)
    assert "same known settings on both sides" in shown
    assert "no significant difference in time to target: B / A is 1.000" in shown


def test_a_side_that_reached_no_target_has_no_time_and_one_without_runs_is_one_clear_line(
    sides: tuple[str, str], tmp_path: Path, printed: Printed
) -> None:
    assert "no run of B reached its target in a log that the judge passes, so there are no times" in printed(
        "compare", sides[0], f"{sides[1]}/result_3"
    )
    (tmp_path / "empty").mkdir()
    for other in ("missing", "empty"):
        (complaint,) = printed("compare", sides[0], tmp_path / other, code=2).splitlines()
        assert str(tmp_path / other) in complaint


def test_equal_values_on_a_side_cause_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = measured("samples", [1000.0, 1000.0], [1200.0, 1201.0])
    assert found.ratio is not None
    assert found.ratio.ratio == pytest.approx(1.2005, rel=1e-4)


def test_a_field_that_is_empty_on_one_side_and_absent_on_the_other_is_no_difference(
    tmp_path: Path, answer: Answer
) -> None:
    sides = [tmp_path / letter / "results" / "toy" / "bert" / "result_0.txt" for letter in "ab"]
    for path, fields in zip(sides, ({"framework": "PyTorch", "cooling": ""}, {"framework": "PyTorch"}), strict=True):
        write(path, closed())
        write(path.parents[3] / "systems" / "toy.json", json.dumps(fields))
    assert answer("compare", *(path.parent for path in sides))["configuration"] == []
