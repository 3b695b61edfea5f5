"""`lab parallel`: its estimator on a case worked by hand, and a small study on gloo ranks."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lab.study.parallel import Row, busy_share, medians
from tests.conftest import Answer


def test_busy_is_the_time_of_operators_that_are_no_communication() -> None:
    def event(name: str, us: float, *within: Any, annotation: bool = False) -> Any:
        return SimpleNamespace(name=name, cpu_time_total=us, cpu_children=within, is_user_annotation=annotation)

    forward = event("Forward 0", 150, event("aten::linear", 40, event("aten::addmm", 20)), annotation=True)
    others = event("c10d::allreduce_", 50), event("aten::mul", 10)
    assert busy_share(event("profiled steps", 200, forward, *others, annotation=True)) == (40 + 10) / 200


def test_a_row_has_the_medians_of_the_seeds() -> None:
    row = Row("data 2", 2, 1, 2.0, 50.0, 5.25, 0.125, [0.75, 0.5], 0.4, [(0, 6.0), (100, 5.25)])
    rows = [replace(row, seed=seed, runtime_s=runtime) for seed, runtime in ((1, 2.0), (2, 9.0), (3, 3.0))]
    (found,) = medians(rows)
    assert (found.runtime_s, found.utilisation, found.least_busy) == (3.0, [0.75, 0.5], 0.5)


@pytest.mark.slow
def test_a_study_trains_alike_in_every_layout(
    tiny_file: str, tmp_path: Path, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "four.json"
    content = json.loads(Path(tiny_file).read_text())
    content["model"]["layers"], content["data"]["global_batch_size"] = 4, 24
    path.write_text(json.dumps(content))
    out = tmp_path / "out"
    monkeypatch.setattr("lab.study.parallel.available_cores", lambda: 2)
    rows = answer("lab", "parallel", "--system", path, "--steps", 5, "--out", out)
    assert [(row["layout"], row["ranks"]) for row in rows] == [
        ("data 1", 1), ("data 2", 2), ("pipeline 2", 2)
    ]  # fmt: skip
    for row in rows:
        assert row["validation_loss"] == pytest.approx(rows[0]["validation_loss"], abs=1e-4)
        assert row["samples_per_s"] == pytest.approx(5 * 24 / row["runtime_s"])
        assert len(row["utilisation"]) == row["ranks"]
        assert all(0 < share < 1 for share in row["utilisation"])
        assert 0 < row["model_flop_utilisation"] < 1
        assert [samples for samples, _ in row["curve"]] == [0, 24, 48, 72, 120]
    assert "pipeline 2" in (out / "study.html").read_text()
