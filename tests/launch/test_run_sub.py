"""run.sub and run_with_docker.sh without their clusters: stand-ins for srun, pyxis, apptainer and docker.

tests/slurm runs run.sub under a real Slurm.
"""

import errno
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from bertbench.common.paths import LAUNCH, REPOSITORY
from bertbench.launch.variables import RUNS_VARIABLES, VARIABLES
from tests.conftest import Program
from tests.faults import failing_calls

# pyxis and apptainer let an image's variables win over the job's, unless they are named or given
IMAGE = "export DATADIR=/image LOGDIR=/image LR=9 MASTER_ADDR=image BERTBENCH_LAUNCHED=image"
SRUN = r"""
keep= image=
[ "$1" != --help ] || { echo "${PYXIS-      --container-image=PATH}"; exit; }
while [ "${1#--}" != "$1" ]; do
  case "$1" in
    --container-env=*) keep=",${1#*=}," ;;
    --container-*=*) image=1; echo "$1" >>"$SEEN" ;;
    --cpu* | --ntasks*) echo "$1" >>"$SEEN" ;;
  esac
  shift
done
if [ -n "$image" ]; then
  for pair in DATADIR=/image LOGDIR=/image LR=9 MASTER_ADDR=image BERTBENCH_LAUNCHED=image; do
    case "$keep" in *",${pair%%=*},"*) ;; *) export "$pair" ;; esac
  done
fi
[ "$1" != /workspace/bertbench/run_and_time.sh ] || { shift; set -- rank "$@"; }
exec "$@"
"""
APPTAINER = rf"""
echo "apptainer $*" >>"$SEEN"
{IMAGE}
for name in $(env | sed -n 's/^APPTAINERENV_\([A-Z_]*\)=.*/\1/p'); do eval "export $name=\"\$APPTAINERENV_$name\""; done
while [ "$1" != /workspace/bertbench/run_and_time.sh ]; do shift; done
shift
exec rank "$@"
"""
GIVEN_ONLY = r"""
[ "$1" != info ] || exit 0
echo "$(basename "$0") $*" >>"$SEEN"
given=
while [ "$1" != /workspace/bertbench/run_and_time.sh ]; do
  [ "$1" != --env ] || eval "[ -z \"\${$2+set}\" ] || given=\"\$given $2=\$$2\""
  shift
done
shift
exec env -i PATH="$PATH" SEEN="$SEEN" $given rank "$@"
"""
RANK = """
echo "rank DATADIR=$DATADIR LOGDIR=$LOGDIR LR=$LR MASTER_ADDR=$MASTER_ADDR LAUNCHED=$BERTBENCH_LAUNCHED" \
  "CLEARED=$BERTBENCH_CACHES_CLEARED" \
  "VARIABLES=$BERTBENCH_VARIABLES: $*" >>"$SEEN"
while [ $# -gt 1 ]; do
  [ "$1" != --resolve ] || printf '%s\n' two_n2 "2 4" LR=0.003 --set optimizer.learning_rate=0.003 >"$2"
  shift
done
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
    for name, lines in {"srun": SRUN, "rank": RANK, "scontrol": SCONTROL}.items():
        program(name, lines)
    for name in starters:
        program(name, STARTERS[name])
    program("run_and_time.sh", RANK)
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
        ("pyxis", "team/bert:1", "--container-image=team/bert:1"),  # on Docker Hub, as docker reads it
        ("pyxis", "docker://localhost:5000/bert", "--container-image=docker://localhost:5000#bert"),
        ("pyxis", "./bert.sqsh", "--container-image=./bert.sqsh"),
        ("apptainer", "registry.example.org/team/bert:1", " docker://registry.example.org/team/bert:1 "),
        ("apptainer", "registry.example.org#team/bert:1", " docker://registry.example.org/team/bert:1 "),
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
    first, *ranks = [line for line in seen if line.startswith("rank ")]
    job = f"DATADIR={tmp_path}/data LOGDIR={tmp_path}/runs LR=3e-3 MASTER_ADDR=10.0.0.1"
    assert "--resolve" in first
    assert f"DATADIR={tmp_path}/data LOGDIR={tmp_path}/runs LR=3e-3" in first
    (rank,) = ranks
    assert job in rank
    assert "LAUNCHED=image" not in rank
    assert "VARIABLES=LR=0.003: two_n2 --set optimizer.learning_rate=0.003 --result" in rank


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
    start.write_text(f'#!/bin/sh\necho "home $0" >>"$SEEN"\n{RANK}')
    start.chmod(0o755)
    (benchmark / "run_and_time.sh").symlink_to("../../run_and_time.sh")
    place = {
        "BERTBENCH_HOME": "", "LOGDIR": "", "SLURM_SUBMIT_DIR": str(tmp_path / submit_dir),
        "SUBMITTED": submitted if submitted == "(null)" else str(tmp_path / submitted),
    }  # fmt: skip
    code, seen, said = run_sub(tmp_path, program, "dgxa100_n8", script=copy, **place)
    assert (code, said) == (0, "")
    assert f"home {start}" in seen
    assert (tmp_path / "a clone" / "runs" / "dgxa100_n8").is_dir()


REGISTRY = "registry.example.org/bert:1"
GUESSED = [
    (True, ("apptainer", "docker"), REGISTRY, "--container-image=registry.example.org#bert:1"),
    (False, ("apptainer", "docker"), REGISTRY, f"apptainer exec --nv .* docker://{REGISTRY} "),
    (False, ("singularity", "docker"), REGISTRY, f"singularity exec --nv .* docker://{REGISTRY} "),
    (False, ("docker", "enroot"), REGISTRY, f"docker run --rm .* --volume (.*):.* {REGISTRY} /workspace"),
    (False, ("docker",), "docker://registry.example.org#bert:1", f"docker run --rm .* {REGISTRY} /workspace"),
    (False, ("enroot", "docker"), "{}/bert.sqsh", "enroot start --rc .*/.enroot.rc .* {}/bert.sqsh /workspace"),
    (True, ("enroot",), "{}/bert.sqsh", "--container-image={}/bert.sqsh"),
    (True, ("apptainer",), "{}/bert.sif", "apptainer exec --nv .* {}/bert.sif "),
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
    job = f"DATADIR={tmp_path}/data LOGDIR={tmp_path}/runs LR=3e-3 MASTER_ADDR=10.0.0.1"
    _, rank = [line for line in seen if line.startswith("rank ")]
    assert job in rank
    assert "VARIABLES=LR=0.003: two_n2 --set optimizer.learning_rate=0.003 --result" in rank


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


def test_without_such_variables_no_step_reads_them(tmp_path: Path, program: Program) -> None:
    image = {"CONTAINER": "pyxis", "CONT": "registry.example.org/bert:1"}
    code, seen, said = run_sub(tmp_path, program, "dgxa100_n8", NEXP="2", LR="", **image)
    assert (code, said) == (0, "")
    ranks = [line for line in seen if line.startswith("rank ")]
    assert len(ranks) == 2
    assert all(f"DATADIR={tmp_path}/data" in rank and ": dgxa100_n8 --result" in rank for rank in ranks)


def test_a_log_that_another_job_has_just_made_is_left_to_it(tmp_path: Path, program: Program) -> None:
    """A client of a network file system may still believe that the file doesn't exist."""
    log = tmp_path / "runs" / "two_n2" / "bert" / "result_0.txt"
    log.parent.mkdir(parents=True)
    log.write_text("another job's\n")
    unseen = {"FAULT_CALL": "stat", "FAULT_PATH": log.name, "FAULT_ERRNO": str(errno.ENOENT)}
    preloaded = {"LD_PRELOAD": str(failing_calls.library(tmp_path)), **unseen}
    code, seen, said = run_sub(tmp_path, program, "two_n2", **preloaded)
    assert (code, said) == (0, "")
    assert log.read_text() == "another job's\n"
    assert any(f"--result {log.parent}/result_1.txt" in line for line in seen)


def test_a_folder_that_takes_no_log_ends_the_job_with_one_line(tmp_path: Path, program: Program) -> None:
    refused = {"FAULT_CALL": "open", "FAULT_PATH": "result_0.txt", "FAULT_ERRNO": str(errno.EROFS)}
    preloaded = {"LD_PRELOAD": str(failing_calls.library(tmp_path)), **refused}
    code, seen, said = run_sub(tmp_path, program, "two_n2", **preloaded)
    assert (code, [line for line in seen if "--result" in line]) == (2, [])
    assert re.fullmatch(r"run.sub: can't make .*result_0.txt \(Read-only file system\); set LOGDIR to .*\n", said)


@pytest.mark.parametrize(("exported", "dropped"), [("1", "1"), ("0", "0"), ("true", "1")])
def test_clearing_caches_is_asked_for_as_published_submissions_do_or_by_a_command(
    tmp_path: Path, program: Program, exported: str, dropped: str
) -> None:
    program("sudo", 'echo "sudo $*" >>"$SEEN"')
    code, seen, said = run_sub(tmp_path, program, "two_n2", CLEAR_CACHES=exported)
    assert (code, said) == (0, "")
    assert ("sudo /sbin/sysctl vm.drop_caches=3" in seen) == (exported == "1")
    assert any(f"CLEARED={dropped}" in line for line in seen)


def test_each_task_gets_its_part_of_a_node_s_cores(tmp_path: Path, program: Program) -> None:
    _, seen, _ = run_sub(tmp_path, program, "dgxa100_n8")
    assert "--cpus-per-task=8" in seen  # 32 of 4
    assert "--cpu-bind=none" in seen
    (tmp_path / "seen").unlink()
    _, seen, _ = run_sub(tmp_path, program, "dgxa100_n8", SLURM_CPUS_PER_TASK="3")
    assert "--cpus-per-task=3" in seen


def test_without_a_number_of_tasks_the_job_has_the_system_s_ranks(tmp_path: Path, program: Program) -> None:
    """Published submissions give sbatch only -N and -t. Slurm then counts a node's 32 cores as tasks."""
    nodes_alone = {"SLURM_NTASKS_PER_NODE": "", "SLURM_TASKS_PER_NODE": "32(x2)"}
    code, seen, said = run_sub(tmp_path, program, "two_n2", **nodes_alone)
    assert (code, said) == (0, "")
    resolving, *ranks = [line for line in seen if line.startswith("rank ")]
    assert ": two_n2 --resolve " in resolving
    assert len(ranks) == 1
    assert {"--ntasks=8", "--ntasks-per-node=4", "--cpus-per-task=8"} <= set(seen)
    for settings, expected in (
        ({"SLURM_NNODES": "3"}, "the job has 3 nodes, but two_n2 has 2; submit it with sbatch -N 2"),
        (
            {"SLURM_NTASKS_PER_NODE": "2", "LR": "1"},
            "the job has 2 tasks on each node, but two_n2 has 4 ranks; omit --ntask",
        ),
        (
            {"SLURM_JOB_CPUS_PER_NODE": "1(x2)"},
            "4 ranks need as many cores on each node, but the job has 1; submit it with sbatch --excl",
        ),
    ):
        code, _, said = run_sub(tmp_path, program, "two_n2", **{**nodes_alone, **settings})
        assert code == 2
        assert said.startswith(f"run.sub: {expected}")


def test_a_variable_names_the_system_and_another_the_number_of_runs(tmp_path: Path, program: Program) -> None:
    code, seen, said = run_sub(tmp_path, program, "--smoke", DGXSYSTEM="DGXA100_8x8x48x1", NEXP="2")
    assert (code, said) == (0, "")
    first, *ranks = [line.partition("/seen")[0] for line in seen if line.startswith("rank ")]
    assert ": --smoke --resolve" in first
    assert len(ranks) == 2
    assert all(": two_n2 --set optimizer.learning_rate=0.003 --smoke --result" in rank for rank in ranks)


WRONG = [
    ("", "no system given; name it after run.sub, or export DGXSYSTEM"),
    ("NEXP=2 RUNS=3 DGXSYSTEM=x", "NEXP is 2 and RUNS is 3; unset one of them"),
    ("NEXP=0 DGXSYSTEM=x", "NEXP is '0'; set it to a number of at least 1"),
    ("CONT=/x.sqsh PYXIS= DGXSYSTEM=x", "CONT is /x.sqsh and this node has none of pyxis enroot to start it; set CONT"),
    ("CONT=/ CONTAINER=enroot DGXSYSTEM=x", "CONTAINER is enroot, which this node doesn't have; unset it to use"),
    ("CONT=x CONTAINER=pyxis PYXIS= DGXSYSTEM=x", "CONTAINER is pyxis, which this node doesn't have; unset it to use"),
    ("CONT=x CONTAINER=podman DGXSYSTEM=x", "CONTAINER is 'podman'; expected none, pyxis, enroot, apptainer, charlie"),
    ("EVALDIR=/nowhere DGXSYSTEM=x", "EVALDIR is /nowhere, which is not a folder on this node"),
]


@pytest.mark.parametrize(("settings", "expected"), WRONG)
def test_a_contradiction_ends_the_job_before_a_step(
    tmp_path: Path, program: Program, settings: str, expected: str
) -> None:
    variables = dict(setting.split("=", 1) for setting in settings.split())
    code, seen, said = run_sub(tmp_path, program, **variables)
    assert (code, seen) == (2, [])
    assert said.startswith(f"run.sub: {expected}")
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize(
    ("script", "left_out"),
    [("run.sub", set()), ("run_with_docker.sh", {*RUNS_VARIABLES, "CONT", "DATADIR", "LOGDIR"})],
)
def test_the_scripts_know_every_variable_that_is_honoured(script: str, left_out: set[str]) -> None:
    found = re.search(r"submission=\((.*?)\)", (LAUNCH / script).read_text(), re.DOTALL)
    assert found
    assert set(found[1].split()) == {*VARIABLES} - left_out


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
