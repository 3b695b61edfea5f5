"""One summary of a run: every command and the Python API give the same numbers, of whole, broken and foreign runs."""

import os
import time
from pathlib import Path
from typing import Any

import pytest

from bertbench.runs.files import ResultFiles
from bertbench.runs.run_summary import read_summary
from bertbench.runs.trackers import final_numbers
from bertbench.training.rank_run import outcome
from compliance import judge_log
from tests.compliance.logs import RESULTS, closed, write
from tests.conftest import Answer
from tests.runs.written import write_run

NUMBERS = ("time_to_train_s", "best_accuracy", "samples", "samples_per_s", "status")
MEASURES = {
    "time to target, s": "time_to_train_s",
    "samples to target": "samples",
    "samples/s": "samples_per_s",
    "evaluation, s": "evaluation_s",
    "start-up, s": "startup_s",
}


def by_command(log: Path, answer: Answer) -> dict[str, dict[str, Any]]:
    """Return the numbers of a run by the command or function that gives them."""
    (group,) = answer("report", log)
    (row,) = answer("report", "--list", log)
    run = read_summary(log)
    tracked = final_numbers(run)
    given = {
        "report": group["runs"][0],
        "report --list": row,
        "read_summary": {name: getattr(run, name) for name in NUMBERS},
        "track": {"samples" if name == "samples_to_train" else name: value for name, value in tracked.items()},
        "train": outcome(ResultFiles(log)),
    }
    return {who: {name: numbers[name] for name in NUMBERS if name in numbers} for who, numbers in given.items()}


def foreign(folder: Path) -> Path:
    folder.mkdir()
    return write(folder / "result_0.txt", closed())


def killed(folder: Path) -> Path:
    log = write_run(folder, steps=4, until_ms=4500, status=None)
    for file in (log, log.with_suffix("") / "metrics.jsonl"):
        os.utime(file, (time.time() - 7200,) * 2)
    return log


def recorded(_: Path) -> Path:
    return RESULTS / "result_3.txt"


RUNS = {
    "success": recorded,
    "aborted": lambda folder: write_run(folder, status="aborted"),
    "running": lambda folder: write_run(folder, steps=2, until_ms=600, status=None),
    "unfinished": killed,
}


@pytest.mark.parametrize("status", RUNS)
def test_every_command_gives_the_same_numbers_of_a_run(status: str, tmp_path: Path, answer: Answer) -> None:
    given = by_command(RUNS[status](tmp_path), answer)
    expected = given["read_summary"]
    assert expected["status"] == status
    for who, numbers in given.items():
        assert numbers == {name: expected[name] for name in numbers}, who
        assert {"best_accuracy", "time_to_train_s"} & numbers.keys() or status in ("running", "unfinished"), who


@pytest.mark.parametrize("log_of", [recorded, foreign])
def test_compare_and_the_judge_give_the_numbers_of_the_report(log_of: Any, tmp_path: Path, answer: Answer) -> None:
    log = log_of(tmp_path / "one")
    (group,) = answer("report", log)
    (run,) = group["runs"]
    judgement = judge_log(log)
    assert (run["verdict"], run["reached"], group["reached"]) == (judgement.verdict, True, 1) == ("pass", True, 1)
    assert (run["time_to_train_s"], run["best_accuracy"]) == (
        judgement.facts.time_to_train_s,
        judgement.facts.best_accuracy,
    )
    compared = answer("compare", log, log)
    means = {measure["name"]: measure["a"] and measure["a"]["mean"] for measure in compared["measures"]}
    for name, field in MEASURES.items():
        assert means[name] == run[field] or (means[name] is None and not run[field]), name
