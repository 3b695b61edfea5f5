"""Commands where a site or a container lacks something: a user's name, a temporary folder, loopback, threads."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.compliance.packages import write_package
from tests.ranks import LIMIT_S

BERTBENCH = f"{sys.executable} -m bertbench"


def in_a_shell(lines: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-ec", lines], env={**os.environ, **environment},
        capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip


def require(command: str) -> None:
    if in_a_shell(command).returncode:
        pytest.skip(f"this machine or user can't do {command}")


@pytest.mark.skipif(sys.platform != "linux", reason="binds to cores")
def test_openmp_binds_neither_a_command_nor_the_ranks_that_it_starts() -> None:
    done = in_a_shell(f"OMP_PROC_BIND=true {BERTBENCH} env")
    assert f"(allowed: {len(os.sched_getaffinity(0))}; " in done.stderr


@pytest.mark.faults
def test_a_user_without_a_name_and_a_home_can_plan_a_run(tiny_file: str) -> None:
    nameless = "unshare --user --map-user=12345 --map-group=12345"
    require(f"{nameless} true")
    done = in_a_shell(f"{nameless} env --ignore-environment {BERTBENCH} plan {tiny_file}")
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


def test_without_a_temporary_folder_one_line_names_the_variable() -> None:
    done = in_a_shell(f"ulimit -f 0; {BERTBENCH} train cpu_demo --smoke")  # no file can take a byte
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1, done.stderr
    assert "TMPDIR" in done.stderr


def test_without_a_temporary_folder_a_package_is_not_judged(tmp_path: Path) -> None:
    write_package(tmp_path)
    done = in_a_shell(f"ulimit -f 0; {sys.executable} -m compliance package {tmp_path}")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1, done.stderr
    assert "TMPDIR" in done.stderr


@pytest.mark.faults
def test_without_loopback_a_run_ends_before_its_ranks_start(tiny_file: str, tmp_path: Path) -> None:
    alone = "unshare --user --map-root-user --net"
    require(f"{alone} true")
    done = in_a_shell(f"{alone} {BERTBENCH} train {tiny_file} --smoke", LOGDIR=str(tmp_path))
    assert done.returncode == 2
    assert "127.0.0.1" in done.stderr.splitlines()[-1], done.stderr
    assert not list(tmp_path.rglob("*.txt"))


@contextmanager
def process_limit(processes: int) -> Iterator[Path]:
    """Make a control group for so many processes and threads; a process joins by writing its id into the file given."""
    pids = Path("/sys/fs/cgroup/pids")
    group = (pids if pids.is_dir() else pids.parent) / f"bertbench-pids-{os.getpid()}"
    try:
        group.mkdir()
        (group / "pids.max").write_text(str(processes))
    except OSError as error:
        pytest.skip(f"a limit of processes needs root and control groups: {error}")
    yield group / "cgroup.procs"
    group.rmdir()


@pytest.mark.faults
@pytest.mark.parametrize("processes", [5, 15])
def test_a_limit_of_processes_is_named_and_no_variable_is_blamed(
    processes: int, tiny_file: str, tmp_path: Path
) -> None:
    with process_limit(processes) as group:
        done = in_a_shell(f"echo $BASHPID >{group}; exec {BERTBENCH} train {tiny_file} --smoke", LOGDIR=str(tmp_path))
    assert done.returncode == 1, done.stderr
    assert "processes or threads" in done.stderr
    assert "Traceback" not in done.stderr
    assert "variable" not in done.stderr
