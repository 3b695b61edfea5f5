"""`bertbench report --list`: every run in a folder with its state, in the requested order."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.compliance.logs import RESULTS
from tests.compliance.packages import line, run_log
from tests.conftest import Answer, Printed
from tests.runs.written import leave

FIELDS = [
    "log",
    "system",
    "seed",
    "status",
    "time_to_train_s",
    "best_accuracy",
    "target",
    "samples_per_s",
    "commit",
    "verdict",
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Runs that ended in every way: reached, missed, interrupted, growing, silent, empty, a smoke test, garbage."""
    logs = tmp_path / "toy" / "bert"
    logs.mkdir(parents=True)
    ended = run_log("open", evaluations=2, seconds=50, seed=5)
    leave(logs, 0, 50, {"name": "small"}, {"commit": "abcdef0123"}, ended)
    leave(logs, 1, 90, log=run_log("open", evaluations=1, seconds=90, seed=3, status="aborted"))
    begun = "\n".join(one for one in ended.splitlines() if '"run_stop"' not in one) + "\n"
    leave(logs, 2, 0, log=begun + line("run_stop", time_ms=9_000, status="aborted", interrupted=True) + "\n")
    leave(logs, 3, 0, log=begun)
    leave(logs, 4, 0, log=begun)
    (logs / "result_10.txt").touch()
    for name in ("result_4.txt", "result_10.txt"):
        os.utime(logs / name, (time.time() - 7200,) * 2)
    (logs / "result_11.txt").write_bytes(b"\0\1 no log")
    smoke = tmp_path / "toy" / "smoke"
    smoke.mkdir()
    (smoke / "smoke_0.txt").write_text(line("not_a_result", "smoke") + "\n" + ended.replace("success", "aborted"))
    return tmp_path


def test_every_run_is_listed_with_its_state(folder: Path, answer: Answer) -> None:
    found = answer("report", "--list", folder)
    assert [list(row) for row in found] == [["command", *FIELDS]] * 8
    assert [(Path(row["log"]).stem, row["status"]) for row in found] == [
        ("result_0", "success"),
        ("result_1", "aborted"),
        ("result_2", "interrupted"),
        ("result_3", "running"),
        ("result_4", "unfinished"),
        ("result_10", "not started"),
        ("result_11", "no log"),
        ("smoke_0", "smoke"),
    ]
    first = found[0]
    assert (first["system"], first["seed"], first["commit"]) == ("small", 5, "abcdef0123")
    assert first["time_to_train_s"] == 50
    assert first["verdict"] in ("pass", "fail")
    assert [row["verdict"] for row in found[2:6]] == [None] * 4  # nobody judges a run that may go on
    assert (found[6]["verdict"], found[7]["verdict"]) == ("cannot-judge", None)  # a smoke run is no result to fail
    assert found[2]["time_to_train_s"] is None  # it has not trained to anything yet


def test_runs_of_logdir_are_sorted_by_a_column_and_those_without_a_value_are_last(
    folder: Path, monkeypatch: pytest.MonkeyPatch, answer: Answer
) -> None:
    monkeypatch.setenv("LOGDIR", str(folder))
    times = [row["time_to_train_s"] for row in answer("report", "--list", "--sort", "time_to_train_s")]
    assert times == [*[50] * times.count(50), 90, *[None] * times.count(None)]
    assert [row["seed"] for row in answer("report", "--list", "--sort", "seed")] == [3, 5, 5, 5, 5, 5, None, None]


def test_the_table_of_the_recorded_runs_agrees_with_the_judge(printed: Printed) -> None:
    shown = printed("report", "--list", RESULTS, "--sort", "time_to_train_s")
    header, fastest, *others = (" ".join(line.split()) for line in shown.splitlines())
    assert header == "log system seed status time s accuracy samples/s commit verdict"
    assert fastest.endswith(" cpu_demo 2299690808 success 124.6 0.4026 1,438.0 85804e9 pass")
    assert len(others) == 9


def test_a_folder_without_runs_is_one_clear_line(tmp_path: Path, printed: Printed) -> None:
    for name in (tmp_path, tmp_path / "missing" / "result_0.txt"):
        assert printed("report", "--list", name, code=2) == (
            f"bertbench: {name}: found no run; start one with `bertbench train`, or name another folder\n"
        )


@pytest.mark.parametrize("command", ["judge", "report --list", "report", "compare"])
def test_every_command_takes_a_run_by_its_folder_as_by_its_log(command: str, tmp_path: Path, printed: Printed) -> None:
    leave(tmp_path, 0, 50, config={})
    by_folder, by_log = (
        printed(*command.split(), *[tmp_path / name] * (2 if command == "compare" else 1), "--json")
        for name in ("result_0", "result_0.txt")
    )
    assert by_folder.replace(".txt", "") == by_log.replace(".txt", "")


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["report", "--list", str(RESULTS)], "verdict"),
        (["compare", f"{RESULTS}/result_0", str(RESULTS)], "+/-"),
    ],
)
def test_looking_at_runs_waits_for_no_large_library_and_works_in_an_ascii_terminal(
    words: list[str], shown: str
) -> None:
    code = f"import sys\nfrom bertbench.cli.main import main\nmain({words!r})\n"
    code += "print(sys.modules.keys() & {'torch', 'matplotlib'})"
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, encoding="ascii", check=True)
    assert shown in done.stdout and "\\u" not in done.stdout
    assert done.stdout.endswith("set()\n")
