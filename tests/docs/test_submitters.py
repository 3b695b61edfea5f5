"""The section of docs/cluster.md for users of published submissions; tests/slurm queues its first lines."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bertbench.launch.variables import TABLE
from tests.docs.listing import REPOSITORY

PAGE = (REPOSITORY / "docs" / "cluster.md").read_text()
SECTION = PAGE.partition("## If you have run published submissions")[2].partition("\n## ")[0]
BLOCKS = re.findall(r"^```\n(.*?)^```$", SECTION, re.MULTILINE | re.DOTALL)


def typed(lines: str, **exported: str) -> str:
    """Return what these lines print when a user types them into a shell in the repository."""
    others = {name: value for name, value in os.environ.items() if name not in (*TABLE, "CONTAINER")}
    environment = {**others, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", **exported}
    done = subprocess.run(
        ["bash", "-ec", lines], cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_lines_that_queue_nothing_print_the_whole_command() -> None:
    printed = typed(BLOCKS[2], NEXP="10", CONT="registry.example.org/bertbench:1", CONTAINER="pyxis")
    words = printed.split()
    assert len(printed.splitlines()) == 1
    assert words[0] == "env"
    assert {"NEXP=10", "CONTAINER=pyxis", f"DATADIR={REPOSITORY}/data", f"LOGDIR={REPOSITORY}/runs"} <= set(words)
    assert words[words.index("sbatch") :] == [
        "sbatch", "--job-name=dgxa100_n8", "--nodes=8", "--ntasks-per-node=8", "--gpus-per-node=8", "--exclusive",
        "--time=155", "--export=ALL", "--partition=PARTITION", f"{REPOSITORY}/benchmarks/bert/run.sub", "dgxa100_n8",
    ]  # fmt: skip


def test_one_machine_runs_the_sourced_system() -> None:
    printed = typed(f"{BLOCKS[3].rstrip()} --dry-run")
    assert printed.splitlines()[-1] == f"{REPOSITORY}/run_and_time.sh dgxa100_n1 --runs 10"


@pytest.mark.parametrize("file", sorted(set(re.findall(r"config_\w+\.sh", PAGE))))
def test_the_files_of_the_page_are_there(file: str) -> None:
    assert (REPOSITORY / "benchmarks" / "bert" / file).is_file()


def test_a_clone_without_its_environment_says_how_to_make_it(tmp_path: Path) -> None:
    (tmp_path / "python3").write_text("#!/bin/sh\nexit 1\n")  # one without bertbench
    (tmp_path / "python3").chmod(0o755)
    shutil.copy(REPOSITORY / "run_and_time.sh", tmp_path)
    done = subprocess.run(
        [tmp_path / "run_and_time.sh", "--dry-run"],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "DGXSYSTEM": "DGXA100_8x8x48x1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "has bertbench; install it there" in done.stderr
