"""Questions about the runs of a result together: copies, speed and settings. They decide nothing."""

import re
from pathlib import Path

import pytest

from compliance import judge_package, judge_result
from compliance.judge import asked_together, judge_log
from tests.compliance.logs import write
from tests.compliance.packages import START, run_log, write_package


def asked(folder: Path, logs: list[str]) -> list[tuple[str, str]]:
    """The log and the topic of each question about a folder of logs."""
    paths = [write(folder / f"result_{number}.txt", log) for number, log in enumerate(logs)]
    judgements = asked_together([judge_log(path, "5.0.0") for path in paths])
    assert {judgement.verdict for judgement in judgements} == {"pass"}
    return [(judgement.path.name, question.topic.id) for judgement in judgements for question in judgement.questions]


def runs(count: int = 6, evaluations: int = 17) -> list[str]:
    return [run_log(seconds=100 + number, seed=number + 1, evaluations=evaluations) for number in range(count)]


def other_accuracies(log: str) -> str:
    return re.sub(
        r'("eval_accuracy", "value": 0\.\d{4})(\d+)',
        lambda found: f"{found[1]}{(int(found[2]) * 7 + 3) % 10**9:09}",
        log,
    )


def other_times(log: str) -> str:
    def later(found: "re.Match[str]") -> str:
        at = int(found[1]) - START - 1000
        return f'"time_ms": {START + 1000 + round(at * 1.013) if at > 0 else int(found[1])}'

    return re.sub(r'"time_ms": (\d+)', later, log)


def test_runs_of_their_own_are_not_asked_about(tmp_path: Path) -> None:
    assert asked(tmp_path, runs()) == []


@pytest.mark.parametrize("change", [str, other_accuracies, other_times], ids=["all", "times", "accuracies"])
def test_a_run_with_all_times_or_accuracies_of_another_is_asked_about_once(tmp_path: Path, change: object) -> None:
    assert callable(change)
    logs = runs()
    logs[4] = change(logs[2]).replace('"seed", "value": 3', '"seed", "value": 99')
    assert asked(tmp_path, logs) == [("result_4.txt", "copied-run")]


def test_a_clock_of_whole_seconds_makes_no_copies(tmp_path: Path) -> None:
    logs = [re.sub(r'"time_ms": (\d+)\d{3}', r'"time_ms": \g<1>000', log) for log in runs()]
    logs[4] = other_accuracies(logs[2]).replace('"seed", "value": 3', '"seed", "value": 99')
    assert asked(tmp_path, logs) == []


def test_a_run_far_faster_than_its_siblings_is_asked_about(tmp_path: Path) -> None:
    logs = runs()
    logs[3] = run_log(seconds=80, seed=4)
    assert asked(tmp_path, logs) == [("result_3.txt", "speed")]
    logs[3] = run_log(seconds=130, seed=4)  # a slow one gains nothing
    assert asked(tmp_path, logs) == []


def test_a_run_of_other_settings_is_asked_about(tmp_path: Path) -> None:
    logs = runs()
    logs[1] = logs[1].replace("6700", "6800")
    logs[2] = logs[2].replace('"value": 6700', '"value": 6700.0').replace("0.000425", "0.000425000005")
    assert asked(tmp_path, logs) == [("result_1.txt", "settings")]


def test_copies_are_found_in_a_result_and_across_the_systems_of_a_package(tmp_path: Path) -> None:
    logs = write_package(tmp_path)
    content = (logs / "result_2.txt").read_text().replace('"seed", "value": 3', '"seed", "value": 6')
    (logs / "result_5.txt").write_text(content)
    questions = [question for log in judge_result(logs).logs for question in log.questions]
    assert [question.topic.id for question in questions] == ["copied-run"]
    other = tmp_path / "results" / "toy2" / "bert"
    write(tmp_path / "systems" / "toy2.json", (tmp_path / "systems" / "toy.json").read_text())
    for number in range(10):
        content = run_log(seconds=200 + number, seed=50 + number)
        write(other / f"result_{number}.txt", content)
    (other / "result_7.txt").write_bytes((logs / "result_1.txt").read_bytes())
    judgement = judge_package(tmp_path, "5.0.0")
    figures = [question.figure for question in judgement.questions]
    assert figures == ["toy2/bert/result_7.txt: all 17 accuracies and times of toy/bert/result_1.txt"]
