"""The recorded runs of the demo converge like 60 other runs of it, by the official RCP checker and its limits."""

import io
import json
import shutil
from pathlib import Path
from statistics import mean

from mlperf_logging.rcp_checker import rcp_checker

from bertbench.runs.run_summary import read_summary
from tests.docs.listing import REPOSITORY

RECORDED = REPOSITORY / "results" / "cpu_demo" / "bert"
REFERENCE = (REPOSITORY / "results" / "rcps_cpu_demo.json").read_text()
RULESET = "5.0.0"
RUNS = [read_summary(log) for log in sorted(RECORDED.glob("result_*.txt"))]


def test_the_reference_has_the_settings_of_the_recorded_runs_and_other_seeds() -> None:
    (reference,) = json.loads(REFERENCE).values()
    assert len(RUNS) == 10
    assert len(reference["Epochs to converge"]) >= 20  # MLPerf's rule: twice the runs of a result
    assert not {run.seed for run in RUNS} & set(reference["Seeds"])
    for name, value in {**reference["Hyperparams"], "global_batch_size": reference["BS"]}.items():
        assert {run.facts.value(name) for run in RUNS} == {value}, name


def test_the_recorded_runs_don_t_converge_faster_than_the_official_checker_allows(tmp_path: Path) -> None:
    logs = shutil.copytree(RECORDED, tmp_path / "bert", ignore=shutil.ignore_patterns("result_?"))
    passed, message, _ = rcp_checker.check_directory(
        str(logs), "training", RULESET, verbose=False, bert_train_samples=False, rcp_file=io.StringIO(REFERENCE),
        rcp_pass="pruned_rcps",
    )  # fmt: skip
    assert passed, message


def test_the_recorded_runs_don_t_converge_slower_than_the_reference_by_the_same_margin() -> None:
    checker = rcp_checker.RCP_Checker("training", RULESET, "bert", False, io.StringIO(REFERENCE))
    (reference,) = checker.rcp_data.values()
    samples = sorted(run.samples or float("inf") for run in RUNS)
    mlperf_mean = mean(samples[1:-1])  # without the fastest and the slowest
    margin = reference["RCP Mean"] - reference["Min Epochs"]
    assert mlperf_mean <= reference["RCP Mean"] + margin
