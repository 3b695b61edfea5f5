"""Questions that compare the runs of a result: copies, speed and settings. They decide nothing."""

from collections.abc import Callable
from pathlib import Path

import pytest

from compliance import judge_package, judge_result
from compliance.judge import asked_together, judge_log
from tests.compliance.logs import Record, write
from tests.compliance.mutations import Mutation, change_file, changed, every, mutation, setting
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


OTHER_SEED = setting("seed", 99)
OTHER_ACCURACIES = every("eval_accuracy", lambda number, one: one.update(value=one["value"] + 1e-6 * (number % 3 + 1)))


@mutation
def timed_again(records: list[Record], time_of: Callable[[int], int]) -> None:
    """Change the time since run_start of every record after it."""
    for record in records:
        in_run_ms = record["time_ms"] - START - INIT_MS
        if in_run_ms > 0:
            record["time_ms"] = START + INIT_MS + time_of(in_run_ms)


SLOWER = timed_again(lambda in_run_ms: round(in_run_ms * 1.013))
IN_WHOLE_SECONDS = timed_again(lambda in_run_ms: in_run_ms // 1000 * 1000)


def test_different_runs_raise_no_question(tmp_path: Path) -> None:
    assert asked(tmp_path, runs()) == []


@pytest.mark.parametrize("changes", [(), (OTHER_ACCURACIES,), (SLOWER,)], ids=["both", "times", "accuracies"])
def test_a_run_with_all_times_or_accuracies_of_another_raises_one_question(
    tmp_path: Path, changes: tuple[Mutation, ...]
) -> None:
    logs = runs()
    logs[4] = changed(logs[2], OTHER_SEED, *changes)
    assert asked(tmp_path, logs) == [("result_4.txt", "copied-run")]


def test_equal_times_in_whole_seconds_raise_no_question(tmp_path: Path) -> None:
    logs = [changed(log, IN_WHOLE_SECONDS) for log in runs()]
    logs[4] = changed(logs[2], OTHER_SEED, OTHER_ACCURACIES)
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
    logs[1] = changed(logs[1], setting("opt_learning_rate_training_steps", 6800))
    assert asked(tmp_path, logs) == [("result_1.txt", "settings")]


@pytest.mark.parametrize(
    ("key", "value"), [("opt_learning_rate_training_steps", 6700.0), ("opt_base_learning_rate", 0.000425000005)]
)
def test_the_same_number_in_another_spelling_raises_no_question(tmp_path: Path, key: str, value: float) -> None:
    logs = runs()
    logs[2] = changed(logs[2], setting(key, value))
    assert asked(tmp_path, logs) == []


def test_a_copy_within_a_result_raises_a_question(tmp_path: Path) -> None:
    logs = write_package(tmp_path)
    copy_of_a_run(logs / "result_2.txt", logs / "result_5.txt")
    questions = [question for log in judge_result(logs).logs for question in log.questions]
    assert [question.topic.id for question in questions] == ["copied-run"]


def test_a_copy_of_another_systems_run_raises_a_question(tmp_path: Path) -> None:
    logs = write_package(tmp_path)
    others = write_second_system(tmp_path)
    copy_of_a_run(logs / "result_1.txt", others / "result_7.txt")
    (question,) = judge_package(tmp_path, "5.0.0").questions
    assert question.topic.id == "copied-run"
    assert "toy2/bert/result_7.txt" in question.figure
    assert "toy/bert/result_1.txt" in question.figure


def copy_of_a_run(log: Path, copy: Path) -> None:
    """Write a copy with a different seed."""
    copy.write_text(log.read_text())
    change_file(copy, OTHER_SEED)


def write_second_system(root: Path) -> Path:
    """Add a system with different runs; return the folder of its logs."""
    write(root / "systems" / "toy2.json", (root / SYSTEM).read_text())
    folder = root / "results" / "toy2" / "bert"
    for number in range(RUNS):
        write(folder / f"result_{number}.txt", run_log(seconds=200 + number, seed=50 + number))
    return folder
