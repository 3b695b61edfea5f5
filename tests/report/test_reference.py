"""`bertbench rcp`: a reference from recorded runs, which the official checker accepts, and its refusals."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from mlperf_logging.rcp_checker import rcp_checker

from tests.compliance.packages import BATCH, evaluated_after, run_log
from tests.conftest import Answer, Printed
from tests.report.written import leave
from tests.run_files.test_settings import config

EVALUATIONS = (15, 16, 16, 17, 17, 17, 17, 18, 18, 19)
"""Of ten runs: without the least and the most their mean is 17."""


def write(
    folder: Path, evaluations: tuple[int, ...], first_seed: int = 0, rate: float = 1e-3, precision: str = "bf16"
) -> Path:
    for number, count in enumerate(evaluations):
        log = run_log("open", evaluations=count, seconds=100, seed=first_seed + number)
        leave(folder, number, 0, config(rate), {"commit": "abc"}, log)
        (folder / f"result_{number}" / "arithmetic.json").write_text(json.dumps({"precision": precision}))
    return folder


@pytest.fixture
def reference(tmp_path: Path, printed: Printed) -> Path:
    """A reference of twenty runs."""
    out = tmp_path / "rcps.json"
    printed("rcp", write(tmp_path / "old", EVALUATIONS * 2), "--out", out)
    return out


def test_a_reference_has_the_form_of_mlperfs_files(reference: Path) -> None:
    (name,), (point,) = zip(*json.loads(reference.read_text()).items(), strict=True)
    published = json.loads(
        (Path(rcp_checker.__file__).parent / "training_5.0.0" / "rcps_bert.json").read_text()
    )["bert_ref_448"]  # fmt: skip
    assert name == "bert_ref_448"
    assert point.keys() >= published.keys()
    assert {field: type(point[field]) for field in published} == {field: type(published[field]) for field in published}
    assert (point["BS"], point["Platform"]) == (BATCH, "toy")
    assert point["Epochs to converge"] == [evaluated_after(count) for count in EVALUATIONS * 2]
    assert point["Configuration"]["optimizer.learning_rate"] == 1e-3
    assert (point["Seeds"], point["Commits"]) == (list(range(20)), {"abc": 20})
    assert point["Precisions"] == ["bf16"] * 20


def test_runs_like_the_reference_pass_between_limits_that_are_the_official_checkers(
    reference: Path, tmp_path: Path, answer: Answer
) -> None:
    found = answer("rcp", write(tmp_path / "new", EVALUATIONS, 100), "--against", reference)
    assert (found["verdict"], found["runs"]) == ("pass", 10)
    assert found["mean"] == sum(map(evaluated_after, EVALUATIONS[1:-1])) / 8
    checker = rcp_checker.RCP_Checker("training", "5.0.0", "bert", False, io.StringIO(reference.read_text()))
    (point,) = checker.rcp_data.values()
    assert found["reference_mean"] == pytest.approx(point["RCP Mean"])
    assert found["least_mean"] == pytest.approx(point["Min Epochs"])
    assert found["most_mean"] - found["reference_mean"] == pytest.approx(found["reference_mean"] - found["least_mean"])


@pytest.mark.parametrize(
    ("change", "missed", "verdict", "cause"),
    [
        (-3, 0, "fail", "they converge implausibly fast"),
        (3, 0, "fail", "they converge more slowly"),
        (0, 1, "pass", ""),
        (0, 2, "fail", "Insufficient convergence"),
    ],
)
def test_runs_that_converge_differently_fail_and_one_of_ten_may_miss_its_target(
    change: int, missed: int, verdict: str, cause: str, reference: Path, tmp_path: Path, answer: Answer
) -> None:
    runs = write(tmp_path / "new", tuple(count + change for count in EVALUATIONS), 100)
    for number in range(missed):
        miss(runs, 9 - number, 109 - number)
    found = answer("rcp", runs, "--against", reference, code=int(verdict == "fail"))
    assert found["verdict"] == verdict
    assert cause in found["message"]


def miss(runs: Path, number: int, seed: int) -> None:
    (runs / f"result_{number}.txt").write_text(run_log("open", evaluations=17, seed=seed, status="aborted"))


@pytest.mark.parametrize(
    ("change", "task", "complaint"),
    [
        ({"evaluations": (17,) * 9}, "--against", "found 9 runs; the limits are for the 10 runs of a result: do more"),
        ({"rate": 2e-3}, "--against", "result_0.txt: has optimizer.learning_rate 0.002, but {reference} has 0.001"),
        ({"first_seed": 19}, "--against", "result_0.txt: has seed 19, and so has a run of {reference}"),
        ({"precision": "fp32"}, "--against", "found runs in bf16 and fp32, expected one precision"),
        ({}, "--out", "found 10 runs; a reference needs at least 20 of one system: do more runs"),
        ({"rate": 2e-3}, "old --out", "has optimizer.learning_rate 0.002"),
        ({"first_seed": 19}, "old --out", "found seed 19 in several runs"),
        ({"precision": "fp32"}, "old --out", "found runs in bf16 and fp32, expected one precision"),
        ({"missed": 3}, "old --out", "result_3.txt: did not reach its target"),
    ],
)
def test_runs_unfit_to_make_or_to_be_judged_by_a_reference_are_one_clear_line(
    change: dict[str, Any], task: str, complaint: str, reference: Path, tmp_path: Path, printed: Printed
) -> None:
    made = {"evaluations": EVALUATIONS, "first_seed": 100, **change}
    missed = made.pop("missed", None)
    runs = write(tmp_path / "new", **made)
    if missed:
        miss(runs, missed, 100 + missed)
    *others, option = task.split()
    file = reference if option == "--against" else tmp_path / "made.json"
    said = printed("rcp", *(tmp_path / name for name in others), runs, option, file, code=2)
    assert complaint.format(reference=reference) in said
    assert not (tmp_path / "made.json").exists()


@pytest.mark.parametrize("content", ["", "[1]", '{"a": {"BS": 1}}', '{"a": 1, "b": 2}'])
def test_a_file_that_is_not_a_reference_is_one_clear_line(content: str, tmp_path: Path, printed: Printed) -> None:
    file = tmp_path / "rcps.json"
    file.write_text(content)
    complaint = printed("rcp", write(tmp_path / "new", EVALUATIONS), "--against", file, code=2)
    assert "is not a reference for one system" in complaint
