"""Questions that compare the runs of a result: copies, speed and settings. They decide nothing."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from compliance import judge_package, judge_result
from compliance.judge import asked_together, judge_log
from tests.compliance.logs import write
from tests.compliance.packages import INIT_MS, RUNS, START, SYSTEM, run_log, write_package


def asked(folder: Path, logs: list[str]) -> list[tuple[str, str]]:
    """The log and the topic of each question about a folder of logs, which pass."""
    paths = [write(folder / f"result_{number}.txt", log) for number, log in enumerate(logs)]
    judgements = asked_together([judge_log(path, "5.0.0") for path in paths])
    assert {judgement.verdict for judgement in judgements} == {"pass"}
    return [(judgement.path.name, question.topic.id) for judgement in judgements for question in judgement.questions]


def runs() -> list[str]:
    """Six runs with different seeds and times; the seed is the number of the log, counted from 1."""
    return [run_log(seconds=100 + number, seed=number + 1) for number in range(6)]


def with_seed_99(log: str) -> str:
    return re.sub(r'"seed", "value": \d+', '"seed", "value": 99', log)


def other_accuracies(log: str) -> str:
    """Change the digits of each accuracy from the fifth on."""

    def other(found: "re.Match[str]") -> str:
        digits = (int(found[2]) * 7 + 3) % 10**9
        return f"{found[1]}{digits:09}"

    return re.sub(r'("eval_accuracy", "value": 0\.\d{4})(\d+)', other, log)


def other_times(log: str) -> str:
    """Make the run 1.3 % slower."""

    def later(found: "re.Match[str]") -> str:
        in_run = int(found[1]) - START - INIT_MS
        if in_run <= 0:
            return found[0]
        return f'"time_ms": {START + INIT_MS + round(in_run * 1.013)}'

    return re.sub(r'"time_ms": (\d+)', later, log)


def test_different_runs_raise_no_question(tmp_path: Path) -> None:
    assert asked(tmp_path, runs()) == []


@pytest.mark.parametrize("change", [str, other_accuracies, other_times], ids=["both", "times", "accuracies"])
def test_a_run_with_all_times_or_accuracies_of_another_raises_one_question(
    tmp_path: Path, change: Callable[[str], str]
) -> None:
    logs = runs()
    logs[4] = with_seed_99(change(logs[2]))
    assert asked(tmp_path, logs) == [("result_4.txt", "copied-run")]


def test_equal_times_in_whole_seconds_raise_no_question(tmp_path: Path) -> None:
    logs = [re.sub(r'"time_ms": (\d+)\d{3}', r'"time_ms": \g<1>000', log) for log in runs()]
    logs[4] = with_seed_99(other_accuracies(logs[2]))
    assert asked(tmp_path, logs) == []


def test_a_run_far_faster_than_the_others_raises_a_question(tmp_path: Path) -> None:
    logs = runs()
    logs[3] = run_log(seconds=80, seed=4)
    assert asked(tmp_path, logs) == [("result_3.txt", "speed")]


def test_a_run_far_slower_than_the_others_raises_no_question(tmp_path: Path) -> None:
    logs = runs()
    logs[3] = run_log(seconds=130, seed=4)
    assert asked(tmp_path, logs) == []


def test_a_run_with_different_settings_raises_a_question(tmp_path: Path) -> None:
    logs = runs()
    logs[1] = logs[1].replace("6700", "6800")
    assert asked(tmp_path, logs) == [("result_1.txt", "settings")]


@pytest.mark.parametrize(("old", "new"), [('"value": 6700', '"value": 6700.0'), ("0.000425", "0.000425000005")])
def test_the_same_number_in_another_spelling_raises_no_question(tmp_path: Path, old: str, new: str) -> None:
    logs = runs()
    assert old in logs[2]
    logs[2] = logs[2].replace(old, new)
    assert asked(tmp_path, logs) == []


def test_a_copy_within_a_result_raises_a_question(tmp_path: Path) -> None:
    logs = write_package(tmp_path)
    copy_of_a_run(logs / "result_2.txt", logs / "result_5.txt")
    questions = [question for log in judge_result(logs).logs for question in log.questions]
    assert [question.figure for question in questions] == ["all 17 accuracies and times equal those of result_2.txt"]


def test_a_copy_of_another_systems_run_raises_a_question(tmp_path: Path) -> None:
    logs = write_package(tmp_path)
    others = write_second_system(tmp_path)
    copy_of_a_run(logs / "result_1.txt", others / "result_7.txt")
    figures = [question.figure for question in judge_package(tmp_path, "5.0.0").questions]
    assert figures == ["toy2/bert/result_7.txt: all 17 accuracies and times equal those of toy/bert/result_1.txt"]


def copy_of_a_run(log: Path, copy: Path) -> None:
    """Write a copy with a different seed."""
    copy.write_text(with_seed_99(log.read_text()))


def write_second_system(root: Path) -> Path:
    """Add a system with different runs; return the folder of its logs."""
    write(root / "systems" / "toy2.json", (root / SYSTEM).read_text())
    folder = root / "results" / "toy2" / "bert"
    for number in range(RUNS):
        write(folder / f"result_{number}.txt", run_log(seconds=200 + number, seed=50 + number))
    return folder
