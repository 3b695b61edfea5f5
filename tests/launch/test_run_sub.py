"""run.sub and run_with_docker.sh without their clusters: stand-ins for srun, pyxis, apptainer and docker.

tests/slurm runs run.sub under a real Slurm.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from bertbench.common.paths import LAUNCH, REPOSITORY
from bertbench.launch.variables import TABLE
from tests.conftest import Program

# the variables of an image, which would win over the job's
IMAGE = "export DATADIR=/image LOGDIR=/image LR=9 PET_MASTER_ADDR=image PET_NNODES=image PET_NODE_RANK=9"
SRUN = rf"""
[ "$1" != --help ] || {{ echo "${{PYXIS-      --container-image=PATH}}"; exit; }}
while [ "${{1#--}}" != "$1" ]; do
  case "$1" in
    --container-*) echo "$1" >>"$SEEN"; {IMAGE} ;;
    --cpu* | --ntasks*) echo "$1" >>"$SEEN" ;;
  esac
  shift
done
export SLURM_NODEID=1
for word in "$@"; do # in an image, another program
  shift
  [ "$word" != /workspace/bertbench/run_and_time.sh ] || word=launcher
  set -- "$@" "$word"
done
exec "$@"
"""
APPTAINER = rf"""
echo "apptainer $*" >>"$SEEN"
{IMAGE}
while [ "$1" != env ]; do shift; done
exec "$@"
"""
GIVEN_ONLY = r"""
[ "$1" != info ] || exit 0
echo "$(basename "$0") $*" >>"$SEEN"
until [ "${1%/bert*}" != "$1" ]; do shift; done
shift
exec env -i PATH="$PATH" SEEN="$SEEN" env "$@"
"""
LAUNCHER = """
echo "launcher DATADIR=$DATADIR LOGDIR=$LOGDIR LR=$LR at $PET_MASTER_ADDR node $PET_NODE_RANK of $PET_NNODES" \
  "$BERTBENCH_RUN: $*" >>"$SEEN"
"""
SCONTROL = """
case "$2" in
  hostnames) echo node01 ;;
  job) printf '%s\n' "JobState=RUNNING SubmitTime=2026-11-27T21:00:00" "   Command=$SUBMITTED" ;;
  node) echo NodeAddr=10.0.0.1 ;;
esac
"""


RUN_SUB = LAUNCH / "run.sub"
SINGULARITY = APPTAINER.replace("apptainer", "singularity").replace("APPTAINER", "SINGULARITY")
STARTERS = {"apptainer": APPTAINER, "singularity": SINGULARITY, "docker": GIVEN_ONLY, "enroot": GIVEN_ONLY}


def run_sub(
    tmp_path: Path,
    program: Program,
    *words: str,
    script: Path = RUN_SUB,
    starters: tuple[str, ...] = ("apptainer",),
    **variables: str,
) -> tuple[int, list[str], str]:
    """The exit code of run.sub on 2 nodes of 32 CPUs and 4 tasks, what was started, and what it said."""
    for name, lines in {"srun": SRUN, "launcher": LAUNCHER, "scontrol": SCONTROL}.items():
        program(name, lines)
    for name in starters:
        program(name, STARTERS[name])
    program("run_and_time.sh", LAUNCHER)
    job = {
        "SLURM_JOB_ID": "77", "SLURM_JOB_NODELIST": "node[01-02]", "SLURM_NNODES": "2",
        "SLURM_SUBMIT_DIR": str(tmp_path), "SLURM_JOB_CPUS_PER_NODE": "32(x2)",
        "SLURM_NTASKS_PER_NODE": "4", "SLURM_TASKS_PER_NODE": "4(x2)",
        "BERTBENCH_HOME": str(tmp_path / "bin"), "DATADIR": str(tmp_path / "data"), "LOGDIR": str(tmp_path / "runs"),
        "SEEN": str(tmp_path / "seen"), "SUBMITTED": "(null)",
    }  # fmt: skip
    done = subprocess.run(
        ["bash", str(script), *words],
        env={**os.environ, **job, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    seen = tmp_path / "seen"
    return done.returncode, seen.read_text().splitlines() if seen.exists() else [], done.stderr


@pytest.mark.parametrize(
    ("container", "image", "started"),
    [
        ("pyxis", "registry.example.org/team/bert:1", "--container-image=registry.example.org#team/bert:1"),
        ("", "registry.example.org/bert:1", "--container-image=registry.example.org#bert:1"),
        ("apptainer", "registry.example.org/team/bert:1", " docker://registry.example.org/team/bert:1 "),
        ("apptainer", "/images/bert.sif", " /images/bert.sif "),
    ],
)
def test_the_job_s_variables_win_over_an_image_s(
    tmp_path: Path, program: Program, container: str, image: str, started: str
) -> None:
    variables = {"CONTAINER": container, "CONT": image, "LR": "3e-3"}
    code, seen, said = run_sub(tmp_path, program, "dgxa100_n8", **variables)
    assert (code, said) == (0, "")
    assert any(started in line for line in seen)
    (launcher,) = [line for line in seen if line.startswith("launcher ")]
    folders = f"DATADIR={tmp_path}/data LOGDIR={tmp_path}/runs"
    assert f"{folders} LR=3e-3 at 10.0.0.1 node 1 of 2 job=77&caches_cleared=false&began=" in launcher
    assert launcher.endswith(": dgxa100_n8")


@pytest.mark.parametrize(
    ("submitted", "submit_dir"),
    [
        ("a clone/benchmarks/bert/run.sub dgxa100_n8 --set a.b=c d", ""),
        ("a clone/benchmarks/bert/launch/run.sub dgxa100_n8", ""),
        ("link.sub", ""),
        ("(null)", "a clone"),  # sbatch <run.sub
        ("copy.sub dgxa100_n8", "a clone/benchmarks/bert"),
    ],
)
def test_the_repository_is_found_from_the_spooled_copy_of_the_script(
    tmp_path: Path, program: Program, submitted: str, submit_dir: str
) -> None:
    benchmark = tmp_path / "a clone" / "benchmarks" / "bert"
    (benchmark / "launch").mkdir(parents=True)
    shutil.copy(RUN_SUB, benchmark / "run.sub")
    (benchmark / "launch" / "run.sub").symlink_to("../run.sub")
    (tmp_path / "link.sub").symlink_to(benchmark / "run.sub")
    (tmp_path / "spool" / "job00077").mkdir(parents=True)
    for copy in (tmp_path / "copy.sub", tmp_path / "spool" / "job00077" / "slurm_script"):
        shutil.copy(RUN_SUB, copy)
    start = tmp_path / "a clone" / "run_and_time.sh"
    start.write_text(f'#!/bin/sh\necho "home $0" >>"$SEEN"\n{LAUNCHER}')
    start.chmod(0o755)
    (benchmark / "run_and_time.sh").symlink_to("../../run_and_time.sh")
    place = {
        "BERTBENCH_HOME": "", "LOGDIR": "", "SLURM_SUBMIT_DIR": str(tmp_path / submit_dir),
        "SUBMITTED": submitted if submitted == "(null)" else str(tmp_path / submitted),
    }  # fmt: skip
    code, seen, said = run_sub(tmp_path, program, "dgxa100_n8", script=copy, **place)
    assert (code, said) == (0, "")
    assert f"home {start}" in seen
    assert (tmp_path / "a clone" / "runs").is_dir()


REGISTRY = "registry.example.org/bert:1"
GUESSED = [
    (True, ("apptainer", "docker"), REGISTRY, "--container-image=registry.example.org#bert:1"),
    (False, ("apptainer", "docker"), REGISTRY, f"apptainer exec --nv .* docker://{REGISTRY} "),
    (False, ("docker", "enroot"), REGISTRY, f"docker run --rm .* --volume (.*):.* {REGISTRY} [A-Z]+=.* launcher"),
    (False, ("docker",), "docker://registry.example.org#bert:1", f"docker run --rm .* {REGISTRY} [A-Z]+=.* launcher"),
    (False, ("enroot", "docker"), "{}/bert.sqsh", "enroot start --rc .*/.enroot.rc .* {}/bert.sqsh env .* launcher"),
    (True, ("enroot",), "{}/bert.sqsh", "--container-image={}/bert.sqsh"),
    (True, ("apptainer",), "{}", "apptainer exec --nv .* {} "),
]


@pytest.mark.parametrize(("pyxis", "starters", "image", "started"), GUESSED)
def test_an_image_is_started_by_a_program_that_the_site_has_and_gets_the_job_s_variables(
    tmp_path: Path, program: Program, pyxis: bool, starters: tuple[str, ...], image: str, started: str
) -> None:
    (tmp_path / "bert.sqsh").touch()
    variables = {"CONT": image.format(tmp_path), "LR": "3e-3", "MLPERF_SUBMISSION_ORG": "us"}
    without = {} if pyxis else {"PYXIS": ""}
    code, seen, said = run_sub(tmp_path, program, "two_n2", starters=starters, **variables, **without)
    assert (code, said) == (0, "")
    assert any(re.match(started.format(tmp_path), line) for line in seen), seen
    (launcher,) = [line for line in seen if line.startswith("launcher ")]
    assert f"DATADIR={tmp_path}/data LOGDIR={tmp_path}/runs LR=3e-3 at 10.0.0.1 node 1 of 2" in launcher


def test_enroot_s_container_runs_the_words_and_not_its_own_entry_point(tmp_path: Path, program: Program) -> None:
    (tmp_path / "bert.sqsh").touch()
    image = {"CONT": str(tmp_path / "bert.sqsh"), "CONTAINER": "enroot"}
    code, _, _ = run_sub(tmp_path, program, "two_n2", starters=("enroot",), **image)
    assert code == 0
    ran = subprocess.run(["sh", tmp_path / "runs" / ".enroot.rc", "echo", "a b"], capture_output=True, check=True)
    assert ran.stdout == b"a b\n"
    code, _, said = run_sub(tmp_path, program, "two_n2", starters=("enroot",), **{**image, "CONT": REGISTRY})
    assert code == 2
    assert "enroot import --output IMAGE.sqsh" in said


@pytest.mark.parametrize(("exported", "dropped"), [("1", "true"), ("0", "false"), ("true", "true")])
def test_clearing_caches_is_asked_for_as_published_submissions_do_or_by_a_command(
    tmp_path: Path, program: Program, exported: str, dropped: str
) -> None:
    program("sudo", 'echo "sudo $*" >>"$SEEN"')
    code, seen, said = run_sub(tmp_path, program, "two_n2", CLEAR_CACHES=exported)
    assert (code, said) == (0, "")
    assert ("sudo /sbin/sysctl vm.drop_caches=3" in seen) == (exported == "1")
    assert any(f"caches_cleared={dropped}" in line for line in seen)


def test_each_node_has_one_launcher_with_all_its_cores(tmp_path: Path, program: Program) -> None:
    """Published submissions give sbatch only -N and -t. Slurm then counts a node's 32 cores as tasks."""
    _, seen, _ = run_sub(tmp_path, program, "dgxa100_n8", SLURM_NTASKS_PER_NODE="", SLURM_TASKS_PER_NODE="32(x2)")
    assert {"--ntasks=2", "--ntasks-per-node=1", "--cpus-per-task=32", "--cpu-bind=none"} <= set(seen)


def test_an_earlier_record_comes_first(tmp_path: Path, program: Program) -> None:
    _, seen, _ = run_sub(tmp_path, program, "dgxa100_n8", BERTBENCH_RUN="exported=%7B%7D", NEXP="2")
    first, second = [line for line in seen if line.startswith("launcher ")]
    assert "node 1 of 2 exported=%7B%7D&job=77&" in first
    assert re.search(r"&allocated=[0-9.]+&submitted=[0-9]+: ", first)
    assert "allocated" not in second  # only the first run waited in the queue


def test_a_variable_names_the_system_and_another_the_number_of_runs(tmp_path: Path, program: Program) -> None:
    code, seen, said = run_sub(tmp_path, program, "--smoke", DGXSYSTEM="DGXA100_8x8x48x1", NEXP="2")
    assert (code, said) == (0, "")
    launchers = [line for line in seen if line.startswith("launcher ")]
    assert len(launchers) == 2
    assert all(line.endswith(": --smoke") for line in launchers)


WRONG = [
    ("", "DGXSYSTEM"),
    ("NEXP=0 DGXSYSTEM=x", "NEXP is '0'"),
    ("CONT=/x.sqsh PYXIS= DGXSYSTEM=x", "CONT is /x.sqsh"),
    ("CONT=/ CONTAINER=enroot DGXSYSTEM=x", "CONT is /"),
    ("CONT=x CONTAINER=podman DGXSYSTEM=x", "CONTAINER is 'podman'"),
    ("EVALDIR=/nowhere DGXSYSTEM=x", "EVALDIR is /nowhere"),
]


@pytest.mark.parametrize(("settings", "expected"), WRONG)
def test_a_contradiction_ends_the_job_before_a_step(
    tmp_path: Path, program: Program, settings: str, expected: str
) -> None:
    variables = dict(setting.split("=", 1) for setting in settings.split())
    code, seen, said = run_sub(tmp_path, program, **variables)
    assert (code, seen) == (2, [])
    assert said.startswith("run.sub: ")
    assert expected in said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize(
    ("script", "left_out"),
    [("run.sub", set()), ("run_with_docker.sh", {"NEXP", "CONT", "DATADIR", "LOGDIR"})],
)
def test_the_scripts_know_every_variable_that_is_honoured(script: str, left_out: set[str]) -> None:
    found = re.search(r"submission=\((.*?)\)", (LAUNCH / script).read_text(), re.DOTALL)
    assert found
    assert set(found[1].split()) == {*TABLE} - left_out


def test_docker_s_container_gets_the_exported_variables_and_its_own_folders(tmp_path: Path, program: Program) -> None:
    program("docker", 'printf "%s " "$@"')
    exported = {
        "DGXSYSTEM": "DGXA100_1x8x56x1", "LR": "3e-3", "SEED": "", "NCCL_DEBUG": "INFO", "EVALDIR": str(tmp_path),
        "DATADIR": str(tmp_path), "LOGDIR": str(tmp_path / "runs"),
    }  # fmt: skip
    command = ["bash", str(LAUNCH.parent / "run_with_docker.sh"), "--smoke"]
    done = subprocess.run(command, env={**os.environ, **exported}, capture_output=True, text=True, check=True)
    for pair in ("DGXSYSTEM=DGXA100_1x8x56x1", "LR=3e-3", "NCCL_DEBUG=INFO", "DATADIR=/data", "LOGDIR=/runs"):
        assert f" --env {pair} " in done.stdout
    assert f" --volume {tmp_path}:{tmp_path}:ro " in done.stdout
    assert done.stdout.endswith(" bertbench --smoke ")
    exported |= {"SEED": "3", "NEXP": "2"}
    done = subprocess.run(command, env={**os.environ, **exported}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "SEED=3 with 2 runs would repeat the same run; unset SEED, or make one run" in done.stderr


@pytest.mark.parametrize("script", ["run_and_time.sh", "benchmarks/bert/launch/run_with_docker.sh"])
def test_a_script_finds_its_repository_by_a_relative_path_where_cdpath_is_exported(
    script: str, tmp_path: Path, program: Program
) -> None:
    assert REPOSITORY is not None
    clone = tmp_path / "clone"
    for folder in (clone / script, clone / ".venv" / "bin" / "python"):
        folder.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(REPOSITORY / script, clone / script)
    program("docker", 'echo "of $PWD/clone: $*"')
    shutil.copy(tmp_path / "bin" / "docker", clone / ".venv" / "bin" / "python")
    (clone / "data").mkdir()
    environment = {name: value for name, value in os.environ.items() if name not in ("DATADIR", "LOGDIR")}
    done = subprocess.run(
        ["bash", f"clone/{script}", "cpu_demo"],
        cwd=tmp_path, env={**environment, "CDPATH": f".:{Path.home()}"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"of {clone}: ")
    assert "docker" not in script or f"--volume {clone}/data:/data:ro" in done.stdout


@pytest.mark.parametrize("installed", ["in the image", "in ~/.local"])
def test_packages_of_the_user_come_in_only_if_bertbench_is_among_them(
    tmp_path: Path, program: Program, installed: str
) -> None:
    """Apptainer shows ~/.local in a container, where it would win over the image's packages."""
    program(
        "python3",
        f'[ -z "$PYTHONNOUSERSITE" ] || [ "{installed}" = "in the image" ] || exit 1; echo "$PYTHONNOUSERSITE"',
    )
    script = shutil.copy(REPOSITORY / "run_and_time.sh", tmp_path)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONNOUSERSITE"}
    done = subprocess.run(["bash", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == ("1\n" if installed == "in the image" else "\n")
