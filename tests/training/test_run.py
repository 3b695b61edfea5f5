"""Whole runs through the command line: real processes, real signals, judged by the official checker."""

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from bertbench.cli.main import main
from bertbench.runs.mlperf_log import CLOCK_SET
from compliance import judge_log
from compliance.read.log import read_events
from tests.conftest import Answer, Captured, Printed
from tests.ranks import LIMIT_S, run_command
from tests.whole_runs import BERTBENCH, children, finished, launched, metrics, wait_for, wait_for_steps, words

pytest.importorskip("pydantic", reason="starts commands that read a system")


def despite_hang_ups(words: list[str], log: Path) -> tuple[dict[str, Any], str]:
    """Start a run with nohup, and hang up all its processes once there are ranks, and again once they train."""
    env = {**os.environ, "LOGDIR": str(log.parents[2])}
    begin = ["nohup", *BERTBENCH, *words]
    with subprocess.Popen(begin, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as launcher:
        for begun in (lambda: bool(children(launcher.pid)), (log.with_suffix("") / "metrics.jsonl").exists):
            wait_for(lambda begun=begun: begun() or launcher.poll() is not None)
            assert launcher.poll() is None
            for process in (launcher.pid, *children(launcher.pid).values()):
                os.kill(process, signal.SIGHUP)
        out, said = launcher.communicate(timeout=LIMIT_S)
    assert launcher.returncode == 0, said
    return json.loads(out), said


def test_a_run_reaches_its_target_and_leaves_a_log_that_the_official_checker_passes(
    tiny_file: str, tmp_path: Path, answer: Answer
) -> None:
    began = time.time()
    log = tmp_path / "runs" / "tiny" / "bert" / "result_0.txt"
    words = ["train", tiny_file, "--json", "--set", "evaluation.target=0.01", "--set", "schedule.max_steps=400"]
    words += ["--seed", "3"]  # one run in a hundred measures 0.06, in which the judge misses a measurement's digits
    outcome, said = despite_hang_ups(words, log)
    assert outcome["log"] == str(log)
    assert outcome["status"] == "success"
    assert outcome["best_accuracy"] >= 0.01
    assert f"bertbench judge {log}" in said
    verdict = judge_log(log, "5.0.0")
    assert (verdict.verdict, verdict.breaches) == ("pass", ())
    assert verdict.facts is not None
    rows = metrics(log)
    assert [row["step"] for row in rows] == list(range(1, len(rows) + 1))
    assert rows[-1]["samples"] == 12 * len(rows) == outcome["samples"]
    expected = {"step", "samples", "loss", "lr", "grad_norm", "clipped", "step_ms", "load_efficiency", "mfu"}
    assert expected | {"cores_busy", "memory_gb", "peak_memory_gb"} <= set(rows[0])
    (stop,) = [event for event in read_events(log) if event.key == "run_stop"]
    (reported,) = answer("report", log)
    spent = reported["runs"][0]["ledger"]
    assert spent["wall_s"] == pytest.approx(stop.time_ms / 1e3 - began, abs=0.5)  # on a machine that others use
    buckets = [seconds for name, seconds in spent.items() if name not in ("wall_s", "goodput")]
    assert sum(buckets) == pytest.approx(spent["wall_s"])
    assert min(spent[f"{bucket}_s"] for bucket in ("startup", "compile", "training", "evaluation")) > 0
    assert spent["goodput"] == pytest.approx(spent["training_s"] / spent["wall_s"])
    assert spent["lost_work_s"] == spent["queued_s"] == 0
    beside = {
        path.name: json.loads(path.read_text())
        for path in log.with_suffix("").glob("*.json")
        if path.name != "trace.json"
    }
    assert beside["config.json"]["evaluation"]["target"] == 0.01
    assert beside["system.json"]["framework"].startswith(f"PyTorch {torch.__version__}")
    assert beside["run.json"]["seed"] == outcome["seed"]


@pytest.mark.slow
def test_runs_draw_different_seeds_and_a_seed_repeats_its_run(tiny_file: str, tmp_path: Path) -> None:
    runs = {"LOGDIR": str(tmp_path)}
    done = finished("launch", tiny_file, "--runs", 2, "--json", **runs)
    assert done.returncode == 3, done.stderr  # the target is out of reach in 6 steps
    first, second = json.loads(done.stdout)
    assert first["seed"] != second["seed"]
    assert first["status"] == second["status"] == "aborted"
    again = json.loads(finished("train", tiny_file, "--json", "--seed", first["seed"], **runs).stdout)
    losses = [[row["loss"] for row in metrics(Path(run["log"]))] for run in (first, second, again)]
    assert losses[0] == losses[2]
    assert losses[0] != losses[1]
    table = finished("report", **runs).stdout
    assert "result_2" in table
    assert "0 of 3 runs reached the target" in table


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc to find the ranks")
@pytest.mark.parametrize(
    ("victim", "number", "reason"),
    [(1, signal.SIGKILL, "rank 1 was killed by SIGKILL"),
     pytest.param(0, signal.SIGKILL, "rank 0 was killed by SIGKILL", marks=pytest.mark.faults),
     pytest.param(1, signal.SIGTERM, "rank 1: stopped by SIGTERM", marks=pytest.mark.faults),
     pytest.param(None, signal.SIGTERM, "stopped by SIGTERM", marks=pytest.mark.faults)],
)  # fmt: skip
def test_when_a_rank_dies_all_stop_and_the_log_says_so(
    tiny_file: str, tmp_path: Path, victim: int | None, number: signal.Signals, reason: str
) -> None:
    endless = words(("schedule.max_steps=100000", "evaluation.interval_samples=600000"))
    log = tmp_path / "tiny" / "bert" / "result_0.txt"
    with launched("train", tiny_file, *endless, LOGDIR=str(tmp_path)) as launcher:
        wait_for_steps(log, 6)
        os.kill(launcher.pid if victim is None else children(launcher.pid)[victim], number)
        _, said = launcher.communicate(timeout=LIMIT_S)
    assert launcher.returncode == (1 if number == signal.SIGKILL else 75)
    assert "Traceback" not in said, said
    lines = log.read_text().splitlines()
    (stop,) = [line for line in lines if '"run_stop"' in line]
    assert '"status": "aborted"' in stop
    assert any(reason in line for line in lines[lines.index(stop) :])


@pytest.mark.faults
@pytest.mark.parametrize("every", ["5", "null"])
def test_ctrl_c_ends_with_the_command_that_resumes(tiny_file: str, tmp_path: Path, every: str) -> None:
    endless = words(("schedule.max_steps=100000", f"checkpoint.every_steps={every}"))
    with launched("train", tiny_file, *endless, LOGDIR=str(tmp_path)) as launcher:
        wait_for_steps(tmp_path / "tiny" / "bert" / "result_0.txt", 13)
        os.killpg(launcher.pid, signal.SIGINT)  # a terminal sends it to the ranks too
        _, said = launcher.communicate(timeout=LIMIT_S)
    assert launcher.returncode == 130
    assert "Traceback" not in said, said
    if every == "null":
        assert said.endswith("--set checkpoint.every_steps=N takes one every N steps\n")
        return
    assert said.splitlines()[-2] == "resume from the last snapshot with:"
    program, *again = shlex.split(said.splitlines()[-1])
    assert program == "bertbench"
    going_on = run_command(2, [*again, "--allow-config-change", "--set", "schedule.max_steps=1"], tmp_path)
    assert going_on.returncode == 3, "it is the same run that goes on"


@pytest.fixture(scope="module")
def settable_clock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library with which a program's wall clock can be set: it is ahead by what the file CLOCK_AHEAD says."""
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("setting a program's clock needs Linux and a C compiler")
    library = tmp_path_factory.mktemp("clock") / "set_clock.so"
    source = Path(__file__).parent / "set_clock.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return library


def test_a_run_during_which_the_clock_was_set_is_no_result(
    tiny_file: str, tmp_path: Path, settable_clock: Path
) -> None:
    log, ahead = tmp_path / "tiny" / "bert" / "result_0.txt", tmp_path / "ahead"
    ahead.write_text("0")
    reachable = words(("schedule.max_steps=100", "evaluation.interval_samples=1200", "evaluation.target=0.0001"))
    clock = {"LD_PRELOAD": str(settable_clock), "CLOCK_AHEAD": str(ahead)}
    with launched("train", tiny_file, *reachable, LOGDIR=str(tmp_path), **clock) as launcher:
        wait_for_steps(log, 5)
        ahead.write_text("-4")
        _, said = launcher.communicate(timeout=LIMIT_S)
    assert launcher.returncode == 3, said
    assert "clock was set by -4.0" in said
    events = read_events(log)
    (stop,) = [event for event in events if event.key == "run_stop"]
    assert stop.metadata["status"] == "aborted"
    assert [event.value for event in events if event.key == CLOCK_SET] == [pytest.approx(-4, abs=0.01)]
    assert judge_log(log, "5.0.0").verdict == "fail"


@pytest.mark.slow
def test_a_clock_that_was_set_before_a_run_was_resumed_is_not_forgotten(
    tiny_file: str, tmp_path: Path, settable_clock: Path
) -> None:
    log, ahead = tmp_path / "tiny" / "bert" / "result_0.txt", tmp_path / "ahead"
    ahead.write_text("0")
    reachable = ("schedule.max_steps=100", "evaluation.interval_samples=1200", "evaluation.target=0.0001")
    run = ["train", tiny_file, *words(reachable), *words(["checkpoint.every_steps=5"])]
    clock = {"LD_PRELOAD": str(settable_clock), "CLOCK_AHEAD": str(ahead)}
    with launched(*run, LOGDIR=str(tmp_path), **clock) as launcher:
        wait_for_steps(log, 15)
        ahead.write_text("3600")
        os.kill(launcher.pid, signal.SIGTERM)
        launcher.communicate(timeout=LIMIT_S)
    again = finished(*run, "--resume", "auto", LOGDIR=str(tmp_path))
    assert again.returncode == 3, again.stderr
    assert "clock was set before the run was resumed" in again.stderr


def test_a_loss_that_is_not_finite_ends_the_run_with_its_step(tiny_file: str, tmp_path: Path) -> None:
    diverging = words(("optimizer.learning_rate=1e30", "clip.mode=none"))
    done = run_command(2, ["train", tiny_file, *diverging], tmp_path)
    assert done.returncode == 1
    assert "the loss of step" in done.stderr
    assert "Traceback" not in done.stderr
    log = (tmp_path / "runs" / "tiny" / "bert" / "result_0.txt").read_text()
    (stop,) = [line for line in log.splitlines() if '"run_stop"' in line]
    assert "lower optimizer.learning_rate" in stop


MISTAKES = {
    "train TINY --set data.path=/nowhere": "/nowhere",
    "train TINY --set model.max_positions=20": "model.max_positions",
    "train TINY --set data.recipe=null --set model.vocab_size=50": "model.vocab_size",
    "train TINY --set hardware.number_of_nodes=2": "2 nodes",
    "launch TINY --runs 2 --seed 1": "--seed",
    "data prepare --system TINY --text /nowhere/text --out OUT": "/nowhere/text",
}


@pytest.mark.parametrize(("words", "expected"), MISTAKES.items())
def test_a_mistake_is_one_error(
    tiny_file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured, words: str, expected: str
) -> None:
    monkeypatch.setenv("LOGDIR", str(tmp_path / "runs"))
    places = {"TINY": tiny_file, "OUT": str(tmp_path / "out")}
    assert main([places.get(word, word) for word in words.split()]) == 2
    printed = capsys.readouterr()
    assert expected in printed.err
    assert printed.out == ""


def test_a_run_folder_that_can_t_be_written_is_one_mistake(
    tiny_file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: Printed
) -> None:
    monkeypatch.setenv("LOGDIR", tiny_file)
    for command in ("train", "launch"):
        (line,) = printed(command, tiny_file, code=2).splitlines()
        assert f"{tiny_file}/tiny/bert" in line
        assert "LOGDIR" in line
    by_torchrun = run_command(2, ["train", tiny_file], tmp_path, LOGDIR=tiny_file)
    assert by_torchrun.returncode == 2
    assert by_torchrun.stderr.count("cannot be written") == 1


def test_a_run_whose_name_has_the_snapshots_of_an_earlier_one_is_refused(
    tiny_file: str, tmp_path: Path, printed: Printed
) -> None:
    log = tmp_path / "result_0.txt"
    (tmp_path / "result_0" / "snapshots").mkdir(parents=True)
    assert "--resume" in printed("train", tiny_file, "--result", log, code=2)
    assert not log.exists()


def test_a_datadir_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch, printed: Printed) -> None:
    monkeypatch.setenv("DATADIR", "/nowhere")
    assert "DATADIR names /nowhere" in printed("train", "cpu_demo", code=2)


def test_a_run_neither_adds_to_the_log_of_another_nor_makes_its_folder(
    tiny_file: str, tmp_path: Path, printed: Printed
) -> None:
    log = tmp_path / "result_0.txt"
    log.touch()  # of a run that has just begun
    assert f"--result {log}" in printed("train", tiny_file, "--result", log, code=2)
    assert log.exists()
    deeper = tmp_path / "none" / "result_0.txt"
    assert f"--result {deeper}" in printed("train", tiny_file, "--result", deeper, code=2)
    assert not deeper.parent.exists()


def test_a_port_in_use_is_one_error(tiny_file: str, tmp_path: Path, printed: Printed) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        launched = printed("train", tiny_file, "--set", f"launch.port={port}", code=2)
        words = ["train", tiny_file, "--set", "launch.timeout_s=5"]
        by_hand = run_command(1, words, tmp_path, WORLD_SIZE="2", MASTER_PORT=str(port))
    assert by_hand.returncode == 1
    assert str(port) in launched
    assert str(port) in by_hand.stderr
    assert "Traceback" not in by_hand.stderr


def test_another_number_of_ranks_than_the_system_s_is_refused(tiny_file: str, tmp_path: Path) -> None:
    done = run_command(1, ["train", tiny_file], tmp_path)
    assert done.returncode == 1
    assert "1 ranks" in done.stderr
    assert "tiny describes 2" in done.stderr
