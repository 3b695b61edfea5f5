"""run.sub under a real Slurm: two virtual nodes of two tasks, over gloo. Needs tests/slurm/install.sh."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from bertbench.common.paths import REPOSITORY
from bertbench.config import load_system
from bertbench.runs.ledger import ledger
from bertbench.runs.trace_reader import read_trace
from compliance import judge_log
from compliance.read.log import read_events
from tests.conftest import write_json
from tests.slurm import cluster as slurm
from tests.tiny import tiny_system
from tests.whole_runs import metrics, wait_for, wait_for_steps, words

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(slurm.missing() is not None, reason=slurm.missing() or ""),
]
ENDLESS = words(("schedule.max_steps=1000000", "evaluation.interval_samples=6000000"))
RUN_SUB = REPOSITORY / "benchmarks" / "bert" / "run.sub"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[slurm.Cluster]:
    with slurm.running(tmp_path_factory.mktemp("slurm")) as running:
        yield running


class Runs(NamedTuple):
    """The system that run.sub trains on the cluster, and the files that it writes."""

    cluster: slurm.Cluster
    folder: Path
    system: str

    def submit(self, *options: str, by_variable: bool = False, sbatch: Sequence[str] = (), **variables: str) -> str:
        """Submit run.sub for the system, which DGXSYSTEM names if `by_variable`; return the job's number.

        `sbatch` are more options for sbatch.
        """
        home = {"BERTBENCH_HOME": str(REPOSITORY), "LOGDIR": str(self.folder / "runs"), "DATADIR": "/"}
        # run_and_time.sh takes the repository's environment, or else `python3`: here, that of the tests
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        said = self.cluster.call(
            "sbatch", "--nodes=2", "--ntasks-per-node=2", "--time=10", f"--output={self.folder}/job.out",
            *sbatch, str(RUN_SUB), *([] if by_variable else [self.system]), *options,
            environment={**home, "PATH": path, **({"DGXSYSTEM": self.system} if by_variable else {}), **variables},
        )  # fmt: skip
        return said.split()[-1]

    def said(self) -> str:
        return (self.folder / "job.out").read_text()

    def queued_again(self, job: str) -> None:
        wait_for(lambda: self.cluster.state(job)["Restarts"] == "1", 120)

    def completed(self, job: str, limit_s: float = 300) -> None:
        assert self.cluster.wait(job, limit_s)["JobState"] == "COMPLETED", self.said()

    def training(self, steps: int = 1, number: int = 0) -> Path:
        """The results' folder, once rank 0 of a run has trained some steps."""
        results = self.folder / "runs" / "two_nodes" / "bert"
        wait_for_steps(results / f"result_{number}.txt", steps)
        return results


@pytest.fixture
def runs(cluster: slurm.Cluster, tmp_path: Path, tiny_folder: Path) -> Runs:
    """Runs of the tests' tiny system on two nodes of two ranks; 12 samples a step are 3 a rank."""
    system = tiny_system(tiny_folder, hardware={"system_name": "two_nodes", "number_of_nodes": 2})
    return Runs(cluster, tmp_path, write_json(tmp_path / "two_nodes.json", system))


def test_two_runs_on_two_nodes_reach_the_target_with_a_log_each(runs: Runs) -> None:
    reachable = words(("evaluation.target=0.01", "schedule.max_steps=400"))
    job = runs.submit(*reachable, NEXP="2", CLEAR_CACHES="true")
    runs.completed(job, 150)
    folder = runs.folder / "runs" / "two_nodes" / "bert"
    logs = sorted(folder.glob("result_*.txt"))
    assert [log.name for log in logs] == ["result_0.txt", "result_1.txt"]
    seeds = set()
    for log in logs:
        verdict = judge_log(log, "5.0.0")
        assert (verdict.verdict, verdict.breaches) == ("pass", ()), verdict
        assert verdict.facts is not None
        seeds.add(verdict.facts.seed)
        text = log.read_text()
        assert '"status": "success"' in text
        # one event a node: CLEAR_CACHES ran there before the run
        assert len(re.findall(r'"key": "cache_clear", "value": true', text)) == 2
        assert json.loads((log.with_suffix("") / "run.json").read_text())["world_size"] == 4
    assert len(seeds) == 2
    assert not list(folder.glob(".job_*"))


def kill(rank: int, job: str) -> None:
    """Kill a rank's process, so that it reports nothing."""
    wanted = {f"RANK={rank}".encode(), f"SLURM_JOB_ID={job}".encode()}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = set((folder / "environ").read_bytes().split(b"\0"))
            command = (folder / "cmdline").read_bytes()
        except OSError:  # it has ended
            continue
        if wanted <= environment and b"bertbench" in command and b"python" in command:
            os.kill(int(folder.name), signal.SIGKILL)
            return
    raise AssertionError(f"found no process of rank {rank}")


def test_two_smoke_runs_complete_their_job(runs: Runs) -> None:
    job = runs.submit("--smoke", NEXP="2")
    runs.completed(job, 150)
    logs = (runs.folder / "runs" / "two_nodes" / "smoke").glob("smoke_*.txt")
    assert sorted(log.name for log in logs) == ["smoke_0.txt", "smoke_1.txt"]


def test_a_killed_rank_fails_the_job_within_30_s_and_the_log_has_the_cause(runs: Runs) -> None:
    job = runs.submit(*ENDLESS)
    folder = runs.training()
    killed = time.monotonic()
    kill(3, job)
    state = runs.cluster.wait(job, 60)
    assert time.monotonic() - killed < 30
    assert state["JobState"] == "FAILED"
    said = runs.said()
    assert "rank 3 was killed by SIGKILL" in said
    assert "run.sub: the run failed with code 1;" in said
    log = (folder / "result_0.txt").read_text()
    (stop,) = [line for line in log.splitlines() if '"run_stop"' in line]
    assert '"status": "aborted"' in stop
    assert "rank 3 was killed by SIGKILL" in stop


LASTING = words(("schedule.max_steps=300", "evaluation.interval_samples=3600", "evaluation.target=0.001"))
"""A run whose only evaluation, at its end, reaches the target."""


def assert_one_resumed_log(folder: Path, number: int = 0) -> None:
    """The run of this number is the last one, was resumed once, and has each step once."""
    log = folder / f"result_{number}.txt"
    assert sorted(folder.glob("result_*.txt"))[-1] == log
    verdict = judge_log(log, "5.0.0")
    assert "resumed" in [unchecked.rule for unchecked in verdict.not_applied], verdict
    assert [row["step"] for row in metrics(log)] == list(range(1, 301))
    assert not list(folder.glob(".job_*"))


def assert_wall_clock(log: Path, job_submitted: float, *spent_on: str) -> None:
    """Assert that the ledger covers submission (to the second) to run_stop, and has some of these buckets."""
    found = ledger(read_trace(log).activities)
    assert found is not None
    (stop,) = [event for event in read_events(log) if event.key == "run_stop"]
    assert sum(found.values()) == pytest.approx(stop.time_ms / 1e3 - job_submitted, abs=1.5)
    assert {bucket for bucket in ("queued", "lost work") if found[bucket]} == set(spent_on)


def test_near_the_end_of_its_wall_time_a_job_is_queued_again_and_resumes(runs: Runs) -> None:
    job = runs.submit(*LASTING, REQUEUE="1", NEXP="2")
    folder = runs.training(number=1)  # the second run, with the first one done
    runs.cluster.call("scancel", "--batch", "--signal=USR1", job)
    runs.queued_again(job)
    before = (folder / "result_0.txt").read_bytes()
    runs.completed(job, 400)
    assert_one_resumed_log(folder, number=1)
    assert (folder / "result_0.txt").read_bytes() == before
    log = (folder / "result_1.txt").read_text()
    assert re.search(r'"resumed".*"after": "job \d+ was stopped"', log)
    assert re.search(r"rank \d: stopped by SIGUSR1", (folder / "result_1" / "lost.txt").read_text())


def test_preempted_ranks_stop_with_a_snapshot_and_the_job_resumes_the_run(runs: Runs) -> None:
    submitted, job = time.time(), runs.submit(*LASTING, REQUEUE="1")
    folder = runs.training()
    runs.cluster.call("scancel", "--signal=USR1", job)
    runs.queued_again(job)
    stopped_after = metrics(folder / "result_0.txt")[-1]["step"]
    runs.completed(job)
    assert_one_resumed_log(folder)
    assert_wall_clock(folder / "result_0.txt", submitted, "queued")
    assert f'"step": {stopped_after}, ' in (folder / "result_0.txt").read_text()


def test_a_job_that_is_cancelled_is_not_queued_again(runs: Runs) -> None:
    job = runs.submit(*ENDLESS, REQUEUE="1")
    runs.training()
    runs.cluster.call("scancel", job)
    state = runs.cluster.wait(job, 90)
    assert (state["JobState"], state["Restarts"]) == ("CANCELLED", "0")


def test_a_task_of_an_array_is_queued_again_alone(runs: Runs) -> None:
    """The number of the array's last task is that of the array: Slurm takes it for all tasks."""
    options = ("--set", "hardware.number_of_nodes=1")
    array = runs.submit(*ENDLESS, *options, sbatch=("--nodes=1", "--array=1-2"), REQUEUE="1")
    for number in range(2):
        runs.training(number=number)
    tasks = [f"{array}_{task}" for task in (1, 2)]
    (last,) = [task for task in tasks if runs.cluster.state(task)["JobId"] == array]
    (other,) = {*tasks} - {last}
    runs.cluster.call("scancel", "--batch", "--signal=USR1", last)
    runs.queued_again(last)
    assert f"job {last} was stopped and is queued again" in runs.said()
    for task in tasks:
        runs.cluster.call("scancel", task)
        assert runs.cluster.wait(task, 90)["JobState"] == "CANCELLED"
    assert runs.cluster.state(other)["Restarts"] == "0"
    assert "invalid date" not in runs.said()


def test_ranks_get_the_script_s_variables_where_a_site_exports_only_some(runs: Runs) -> None:
    job = runs.submit("--smoke", sbatch=["--export=PATH,BERTBENCH_HOME,LOGDIR,DATADIR"])
    runs.completed(job, 100)


def test_after_a_node_failed_the_job_resumes_the_run(runs: Runs) -> None:
    submitted = time.time()
    job = runs.submit(*LASTING, "--set", "checkpoint.every_steps=5", REQUEUE="1")
    folder = runs.training(steps=15)
    runs.cluster.call("scontrol", "update", "NodeName=n2", "State=DOWN", "Reason=test")
    for rank in (2, 3):
        kill(rank, job)
    runs.queued_again(job)
    runs.cluster.call("scontrol", "update", "NodeName=n2", "State=RESUME")
    runs.completed(job)
    assert_one_resumed_log(folder)
    assert_wall_clock(folder / "result_0.txt", submitted, "queued", "lost work")


def test_a_run_that_loses_a_rank_resumes_in_its_job(runs: Runs) -> None:
    job = runs.submit(*LASTING, "--set", "checkpoint.every_steps=5", RESTARTS="1")
    folder = runs.training(steps=15)
    kill(1, job)
    runs.completed(job)
    assert_one_resumed_log(folder)
    assert "rank 1 was killed by SIGKILL" in (folder / "result_0.txt").read_text()


def test_another_number_of_nodes_than_the_system_s_is_one_error(runs: Runs) -> None:
    job = runs.submit("--set", "hardware.number_of_nodes=3")
    assert runs.cluster.wait(job, 60)["JobState"] == "FAILED"
    assert runs.said().count("2 nodes were started (PET_NNODES), but two_nodes has 3; on Slurm, submit it with") == 1
    assert not list((runs.folder / "runs").rglob("result_*.txt"))


def test_exported_variables_apply_on_all_ranks_and_are_printed_once_a_run(runs: Runs) -> None:
    exported = {"NEXP": "2", "LR": "3e-3", "MAX_STEPS": "5", "DGXNNODES": "2", "DGXNGPU": "2", "BATCHSIZE": ""}
    job = runs.submit(by_variable=True, **exported)
    runs.cluster.wait(job, 150)
    said = runs.said()
    assert said.count("LR=3e-3: --set optimizer.learning_rate=0.003") == 2, said  # once a run
    folder = runs.folder / "runs" / "two_nodes" / "bert"
    assert sorted(log.name for log in folder.glob("result_*.txt")) == ["result_0.txt", "result_1.txt"], said
    for number in range(2):
        config = json.loads((folder / f"result_{number}" / "config.json").read_text())
        assert (config["optimizer"]["learning_rate"], config["schedule"]["max_steps"]) == (0.003, 5)
        variables = json.loads((folder / f"result_{number}" / "run.json").read_text())["variables"]
        kept = {name: text for name, text in exported.items() if text}
        assert {name: variables[name] for name in kept} == kept
    assert not list((runs.folder / "runs").glob(".job_*"))


def session_of_the_page() -> str:
    """The lines of docs/cluster.md for users of published submissions."""
    page = (REPOSITORY / "docs" / "cluster.md").read_text().partition("## If you have run published submissions")[2]
    found = re.search(r"^```\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert found
    return found[1]


@pytest.fixture
def clone(runs: Runs) -> Path:
    """A repository's scripts, in which a user has written the configuration file of a system of two nodes."""
    assert REPOSITORY is not None
    clone = runs.folder / "a clone"
    (clone / "benchmarks" / "bert" / "launch").mkdir(parents=True)
    for script in ("run_and_time.sh", "benchmarks/bert/run.sub"):
        shutil.copy(REPOSITORY / script, clone / script)
    (clone / "benchmarks" / "bert" / "launch" / "run.sub").symlink_to("../run.sub")
    system = load_system(runs.system)
    lines = [
        f"export DGXSYSTEM='{runs.system}'",
        "export DGXNNODES=2",
        "export DGXNGPU=2",
        f"export BATCHSIZE={system.local_batch}",
        f"export LR={system.optimizer.learning_rate}",
        f"export WALLTIME_MINUTES={system.launch.walltime_minutes}",
        "export WALLTIME=$((${NEXP:-1} * WALLTIME_MINUTES + 5))",
    ]
    (clone / "benchmarks" / "bert" / "config_two_nodes.sh").write_text("\n".join(lines) + "\n")
    return clone


def in_a_shell(runs: Runs, lines: str, folder: Path) -> str:
    """Return what a user's lines print in a shell that has none of our variables."""
    environment = {**runs.cluster.environment, "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": "/root"}
    done = subprocess.run(
        ["bash", "-ec", lines], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_lines_for_users_of_published_submissions_give_results(runs: Runs, clone: Path) -> None:
    lines = session_of_the_page()
    for ours, theirs in {
        "NEXP=10": "NEXP=2",
        "config_DGXA100_8x8x48x1.sh": "config_two_nodes.sh",
        "CONT=registry.example.org/bertbench:1 ": "",  # no image here
        "/shared/data": "/",
        "/shared/runs": f"'{runs.folder}/runs'",
    }.items():
        assert ours in lines
        lines = lines.replace(ours, theirs)
    job = in_a_shell(runs, f"{lines}\necho $WALLTIME", clone).split()
    assert job[:3] == ["Submitted", "batch", "job"]
    assert job[-1] == "125"  # 2 runs of the system's 60 minutes, and 5
    state = runs.cluster.wait(job[3], 200)
    said = (clone / "benchmarks" / "bert" / f"slurm-{job[3]}.out").read_text()
    assert "BATCHSIZE, LR, DGXNNODES, DGXNGPU: as two_nodes has\n" in said
    assert state["TimeLimit"] == "02:05:00"
    folder = runs.folder / "runs" / "two_nodes" / "bert"
    logs = sorted(folder.glob("result_*.txt"))
    assert [log.name for log in logs] == ["result_0.txt", "result_1.txt"], said
    for log in logs:
        run = json.loads((log.with_suffix("") / "run.json").read_text())
        assert (run["world_size"], run["variables"]["NEXP"]) == (4, "2")
        assert "not reached in 6 steps" in log.read_text()
    assert state["ExitCode"] == "3:0", said  # the target is missed


@pytest.mark.parametrize(
    ("folder", "script"),
    [
        (".", "benchmarks/bert/run.sub"),
        ("benchmarks/bert", "launch/run.sub"),
        ("..", "'a clone/benchmarks/bert/run.sub'"),
        ("benchmarks", "<bert/run.sub"),
        ("..", "--array=1-2 'a clone/benchmarks/bert/run.sub'"),
    ],
)
def test_the_job_finds_its_repository_from_any_folder(runs: Runs, clone: Path, folder: str, script: str) -> None:
    """The error comes from bertbench, which can be started only in the repository."""
    file = clone / "benchmarks" / "bert" / "config_two_nodes.sh"
    lines = f"source '{file}'; export LR=fast\nsbatch -N $DGXNNODES -t $WALLTIME --output='{clone}/job.out' {script}"
    job = in_a_shell(runs, lines, clone / folder).split()[-1]
    tasks = [f"{job}_1", f"{job}_2"] if "--array" in script else [job]
    for task in tasks:
        assert runs.cluster.wait(task, 60)["ExitCode"] == "2:0"
    said = (clone / "job.out").read_text()
    assert said.count("bertbench: LR=fast: expected a number above 0") == len(tasks)
    assert (clone / "runs").is_dir()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ("export DGXNNODES=1", "DGXNNODES=1: two_nodes has 2 nodes"),
        ("export LR=fast", "LR=fast: expected a number above 0"),
        ("nodes=1", "two_nodes has 2 nodes, but this is one"),
    ],
)
def test_a_variable_that_contradicts_a_sourced_file_ends_the_job(
    runs: Runs, clone: Path, changes: str, expected: str
) -> None:
    lines = (
        f"source config_two_nodes.sh; nodes=$DGXNNODES; {changes}\n"
        "sbatch -N $nodes -t $WALLTIME --output=job.out run.sub"
    )
    job = in_a_shell(runs, lines, clone / "benchmarks" / "bert").split()[-1]
    assert runs.cluster.wait(job, 60)["ExitCode"] == "2:0"
    said = (clone / "benchmarks" / "bert" / "job.out").read_text()
    assert expected in said
    assert "Traceback" not in said


def test_a_printed_line_queues_the_job_from_another_shell(runs: Runs, clone: Path) -> None:
    lines = (
        "source benchmarks/bert/config_two_nodes.sh; export NEXP=1 DATADIR=/ LOGDIR=my_runs SEED=5\n"
        "./run_and_time.sh --smoke --on slurm --dry-run -- --output=/dev/null --comment='of a person'"
    )
    printed = in_a_shell(runs, lines, clone)
    job = in_a_shell(runs, printed, Path("/")).split()[-1]
    state = runs.cluster.wait(job, 100)
    assert (state["ExitCode"], state["Comment"]) == ("0:0", "of")  # `state` reads words
    (log,) = (clone / "my_runs" / "two_nodes" / "smoke").glob("smoke_*.txt")
    assert json.loads((log.with_suffix("") / "run.json").read_text())["seed"] == 5


WRONG = {
    "NEXP=no": "NEXP is 'no'; set it to a number",
    "LR=fast": "bertbench: LR=fast: expected a number above 0",
    "DGXNNODES=3": "DGXNNODES=3: two_nodes has 2 nodes",
    "CONT=/nowhere/image.sif": "CONT is /nowhere/image.sif and this node has none of apptainer to start it",
    "RESTARTS=no": "RESTARTS is 'no'; set it to a number",
    "BERTBENCH_HOME=/nowhere": "found no run_and_time.sh in /nowhere; set BERTBENCH_HOME",
    "CONTAINER=podman": "expected none, pyxis, enroot, apptainer, charliecloud or docker",
    "CONTAINER=pyxis": "CONT isn't set; set it to an image",
}


@pytest.mark.parametrize(("variable", "expected"), WRONG.items())
def test_a_wrong_variable_is_one_error(runs: Runs, variable: str, expected: str) -> None:
    job = runs.submit(**dict([variable.split("=")]))
    assert runs.cluster.wait(job, 30)["ExitCode"] == "2:0"
    assert runs.said().count(expected) == 1
