"""The commands that `bertbench launch` prints and runs elsewhere."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bertbench.cli.main import main
from bertbench.common.paths import REPOSITORY
from bertbench.config import load_system
from bertbench.launch.command_lines import SLURM_SCRIPT, Job, slurm_command, torchrun_lines
from lab.spawn import environments_of
from tests.conftest import Answer, Captured, Printed, Program, write_json
from tests.tiny import tiny_system


@pytest.fixture(autouse=True)
def site(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command starts this image."""
    monkeypatch.setenv("CONT", "registry.example.org/bertbench:1")


def job(name: str, *options: str, runs: int = 1) -> Job:
    return Job(load_system(name), name, list(options), runs)


def test_the_sbatch_line_says_what_the_system_file_says() -> None:
    words, variables = slurm_command(job("dgxa100_n8", "--set", "a.b=c d", runs=10))
    assert words[0] == "sbatch"
    assert {"--nodes=8", "--ntasks-per-node=8", "--gpus-per-node=8", "--time=155"} <= set(words)  # 10 x 15 + 5
    assert words[-4:] == [str(SLURM_SCRIPT), "dgxa100_n8", "--set", "a.b=c d"]
    assert variables["NEXP"] == "10"
    assert "--gpus-per-node=2" not in slurm_command(job("cpu_demo")).words


def test_by_hand_there_is_one_torchrun_line_per_node_and_a_single_node_needs_none() -> None:
    lines = torchrun_lines(job("dgxa100_n2"))
    assert [line[3] for line in lines] == ["--node-rank=0", "--node-rank=1"]
    assert lines[0][1:3] == ["--nnodes=2", "--nproc-per-node=8"]
    (alone,) = torchrun_lines(job("dgxa100_n1", runs=3))
    assert alone == [str(REPOSITORY / "run_and_time.sh"), "dgxa100_n1", "--runs", "3"]


def test_every_launcher_is_given_the_number_of_restarts() -> None:
    system = load_system("dgxa100_n2", ["launch.max_restarts=3"])
    again = Job(system, "dgxa100_n2", [], 1)
    assert slurm_command(again).variables["RESTARTS"] == "3"
    assert all("--max-restarts=3" in line for line in torchrun_lines(again))
    assert not any("--max-restarts" in word for line in torchrun_lines(job("dgxa100_n2")) for word in line)


def test_a_dry_run_prints_a_line_that_a_shell_can_read(answer: Answer, printed: Printed) -> None:
    words = ["launch", "dgxa100_n1", "--on", "slurm", "--dry-run", "--set", "hardware.cooling=air and water"]
    (command,) = answer(*words)["commands"]
    echo = f"printf '%s\\n' {printed(*words)}"
    echoed = subprocess.run(["bash", "-c", echo], capture_output=True, text=True, check=True)
    assert echoed.stdout.splitlines() == command


def test_run_with_docker_starts_a_container_for_each_run(
    capfd: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: Program
) -> None:
    # docker stands aside here for a program of its name that prints what it was called with
    program("docker", 'echo "docker $*"')
    monkeypatch.setenv("DATADIR", str(tmp_path))
    monkeypatch.setenv("LOGDIR", str(tmp_path / "runs"))
    assert main(["launch", "dgxa100_n1", "--on", "docker", "--runs", "2"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert len(lines) == 2
    for part in (f"--volume {tmp_path}:/data:ro", "--gpus all", "--ipc=host", "bertbench:1 dgxa100_n1"):
        assert part in lines[0]
    own = tmp_path / "own"
    own.mkdir()
    write_json(own / "mine.json", {"extends": "dgxa100_n1"})
    monkeypatch.chdir(tmp_path)
    assert main(["launch", "own/mine.json", "--on", "docker", "--smoke"]) == 0
    line = capfd.readouterr().out
    assert f"--volume {own}:/systems:ro" in line
    assert "bertbench:1 /systems/mine.json --smoke" in line


MISTAKES = [
    (2, "dgxa100_n2 --on docker", "", "2 nodes"),
    (2, "cpu_demo --on slurm --result x", "", "LOGDIR"),
    (1, "cpu_demo --close /nowhere/result_0.txt", "", "/nowhere/result_0.txt"),
    (2, "dgxa100_n2", "", "--dry-run"),
    (2, "cpu_demo --on slurm", "PATH=/nowhere", "sbatch"),
    # what would only fail in the job, after it has waited in the queue
    (2, "cpu_demo --on slurm --dry-run", "CONTAINER=podman CONT=", "CONTAINER is 'podman'"),
    (2, "cpu_demo --on slurm --dry-run", "CONTAINER=pyxis CONT=", "CONTAINER is pyxis"),
    (2, "cpu_demo --on slurm --dry-run", "CONTAINER=pyxis CONT=/nowhere/image.sqsh", "CONT is /nowhere/image.sqsh"),
    (0, "cpu_demo --on slurm --dry-run", "CONTAINER=pyxis CONT=registry/bertbench:1", "sbatch"),
]  # fmt: skip


@pytest.mark.parametrize(("code", "words", "settings", "expected"), MISTAKES)
def test_a_mistake_is_one_error_before_anything_starts(
    printed: Printed, monkeypatch: pytest.MonkeyPatch, code: int, words: str, settings: str, expected: str
) -> None:
    for setting in settings.split():
        monkeypatch.setenv(*setting.split("=", 1))
    assert expected in printed("launch", *words.split(), code=code)  # on standard error, if on nothing else


def test_ten_runs_without_a_submitter_raise_a_warning(capfd: Captured) -> None:
    for words in ("--runs 9", "--runs 10 --set hardware.submitter=me", "--runs 10"):
        said = capfd.readouterr().err
        assert "hardware.submitter isn't set" not in said
        assert main(["launch", "dgxa100_n8", "--on", "slurm", "--dry-run", *words.split()]) == 0
    assert "warning: hardware.submitter isn't set" in capfd.readouterr().err


def test_closing_a_log_ends_it_with_the_cause_and_removes_one_that_never_started(
    printed: Printed, tmp_path: Path
) -> None:
    started, empty = tmp_path / "result_0.txt", tmp_path / "result_1.txt"
    started.write_text(':::MLLOG {"key": "run_start", "value": null}\n')
    empty.touch()
    for log in (started, empty):
        printed("launch", "cpu_demo", "--close", log, "--reason", "srun: error: task 3: Killed")
    last = json.loads(started.read_text().splitlines()[-1].removeprefix(":::MLLOG "))
    assert last["key"] == "run_stop"
    assert (last["metadata"]["status"], last["metadata"]["reason"]) == ("aborted", "srun: error: task 3: Killed")
    assert not empty.exists()


@pytest.mark.slow
def test_the_lines_by_hand_train_over_two_agents(tmp_path: Path, tiny_folder: Path) -> None:
    hardware = {"system_name": "by_hand", "number_of_nodes": 2}
    launch = {"port": int(environments_of(1)[0]["MASTER_PORT"]), "timeout_s": 60}
    path = write_json(tmp_path / "by_hand.json", tiny_system(tiny_folder, hardware=hardware, launch=launch))
    lines = torchrun_lines(job(path))
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "LOGDIR": str(tmp_path / "runs"),
        "MASTER_ADDR": "127.0.0.1",
    }
    agents = [
        subprocess.Popen([word.replace("$MASTER_ADDR", "127.0.0.1") for word in line],
                         env=environment, stderr=subprocess.PIPE, text=True)
        for line in lines
    ]  # fmt: skip
    said = [agent.communicate(timeout=180)[1] for agent in agents]
    logs = [*(tmp_path / "runs" / "by_hand" / "bert").glob("result_*.txt")]
    assert len(logs) == 1, said
    log = logs[0]
    assert "target 0.9 not reached in 6 steps" in log.read_text(), said
    assert json.loads((log.with_suffix("") / "run.json").read_text())["world_size"] == 4
