"""The judge as a whole: which logs it finds, which facts it reads, its exit codes, and its dependencies."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from compliance.read.find import find_logs
from compliance.read.log import CannotJudge
from compliance.read.run import RunFacts
from compliance.read.score import counted
from tests.compliance.logs import judged, write
from tests.compliance.packages import run_log


def test_a_runs_facts_are_read_from_its_log(tmp_path: Path) -> None:
    judgement = judged(tmp_path, run_log("open", evaluations=2, seed=7))
    assert (judgement.verdict, judgement.breaches) == ("pass", ())
    facts = judgement.facts
    assert facts is not None
    assert (facts.benchmark, facts.division, facts.status, facts.seed) == ("bert", "open", "success", 7)
    assert (facts.time_to_train_s, facts.samples) == (100.0, 300_160)  # 670 steps of 448
    assert (facts.samples_per_s, facts.best_accuracy) == (3001.6, facts.evaluations[-1].accuracy)
    empty = RunFacts([])
    assert empty.time_to_train_s is empty.best_accuracy is empty.samples is empty.samples_per_s is None


def test_logs_are_found_at_any_level_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for name in ("a/bert/result_10.txt", "a/bert/result_2.txt", "b/bert/result_0.txt", "b/notes.txt"):
        write(tmp_path / name, run_log())
    found = [str(path.relative_to(tmp_path)) for path in find_logs(tmp_path)]
    assert found == ["a/bert/result_2.txt", "a/bert/result_10.txt", "b/bert/result_0.txt"]
    with pytest.raises(CannotJudge, match="no such file or folder"):
        find_logs(tmp_path / "none")


def test_a_runs_folder_stands_for_the_log_next_to_it_but_a_folder_of_logs_for_its_own_logs(tmp_path: Path) -> None:
    log = write(tmp_path / "bert" / "result_0.txt", run_log())
    assert find_logs(tmp_path / "bert" / "result_0") == [log]  # as where only the log was copied
    (tmp_path / "bert" / "result_0").mkdir()
    assert find_logs(tmp_path / "bert" / "result_0") == [log]
    (tmp_path / "bert.txt").write_text("notes")
    assert find_logs(tmp_path / "bert") == [log]


@pytest.mark.parametrize(("what", "code"), [("sound", 0), ("broken", 1), ("missing", 2)])
def test_the_exit_code_is_the_worst_verdict(tmp_path: Path, what: str, code: int) -> None:
    write(tmp_path / "sound" / "result_0.txt", run_log())
    write(tmp_path / "broken" / "result_0.txt", run_log()[:-99])
    command = [sys.executable, "-m", "compliance", "--json", str(tmp_path / "sound"), str(tmp_path / what)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    first, second = json.loads(done.stdout)
    assert first["verdict"] == "pass"
    assert first["official"] == {"ruleset": "5.0.0", "verdict": "pass"}
    assert second["verdict"] == {0: "pass", 1: "fail", 2: "cannot-judge"}[code]
    assert {"path", "division", "time_to_train_s", "best_accuracy", "findings"} <= set(second)


def test_the_fastest_and_the_slowest_run_do_not_count() -> None:
    assert counted([3.0, 1.0, 2.0]) == [False, False, True]
    assert counted([3.0, None, 2.0, 4.0]) == [True, False, False, True]  # the failed run is the slowest
    assert counted([3.0, None, None, 4.0]) == [True, False, False, True]
    assert counted([3.0, 1.0]) == [True, True]
    assert counted([]) == []


def test_the_judge_needs_neither_torch_nor_bertbench() -> None:
    modules = "sys, compliance.__main__, compliance.package.package"
    code = f"import {modules}; print({{'torch', 'bertbench'}} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"
