"""Which processes are ranks: torchrun's and srun's are; shells, batch scripts and what inherits variables are not."""

import os
import subprocess
import sys

import pytest

from bertbench.common.errors import RunError
from bertbench.distributed.ranks import Ranks, has_own_cores, launched_ranks, ranks_of_run, withheld_cores

SHELL = {  # what Slurm sets in the shell of `srun --pty bash`
    "SLURM_JOB_ID": "77", "SLURM_JOB_NAME": "bash", "SLURM_NTASKS": "1", "SLURM_STEP_ID": "0", "SLURM_PROCID": "0",
    "SLURM_STEP_NUM_TASKS": "1", "SLURM_LOCALID": "0", "SLURM_STEP_TASKS_PER_NODE": "1", "SLURM_NODEID": "0",
}  # fmt: skip
STEP = {**SHELL, "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_TASKS_PER_NODE": "2", "SLURM_GTIDS": "0,1"}
EXPORTED = {"RANK": "0", "WORLD_SIZE": "1"}
TORCHRUN = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}

NO_RANKS = {
    "the shell of srun --pty": SHELL,
    "an exported world of one": EXPORTED,
    "an exported world of one, with a place": {**EXPORTED, "LOCAL_RANK": "0", "MASTER_ADDR": "localhost"},
    "the shell of salloc": {**STEP, "SLURM_STEP_ID": "4294967290"},
    "an allocation without a step": {"SLURM_JOB_ID": "77", "SLURM_NTASKS": "2", "SLURM_PROCID": "0"},
    "a batch script that a step submitted": {**STEP, "SLURM_GTIDS": "0"},
    "MPI's leftovers": {"PMI_RANK": "1", "PMI_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"},
}


@pytest.mark.parametrize("environment", NO_RANKS.values(), ids=NO_RANKS)
def test_a_process_that_is_not_a_rank_starts_the_ranks_of_a_run(environment: dict[str, str]) -> None:
    assert ranks_of_run(environment, nodes=1, ranks_per_node=2) is None


def test_a_launcher_s_processes_stay_ranks() -> None:
    assert ranks_of_run(TORCHRUN, 1, 2) == Ranks(1, 2, 1, 2)
    assert ranks_of_run(STEP, 1, 2) == Ranks(0, 2, 0, 2)
    assert ranks_of_run(SHELL, 1, 1) == Ranks(0, 1, 0, 1)  # the only rank of a run of one
    # torchrun started one process where two are needed: an error later, not two more
    assert ranks_of_run({**EXPORTED, "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}, 1, 2) == Ranks(0, 1, 0, 1)


def test_part_of_a_launcher_s_variables_is_an_error_that_says_what_to_unset() -> None:
    for part in ({"RANK": "0"}, {"RANK": "3", "LOCAL_RANK": "3"}):
        with pytest.raises(RunError, match=r"must set all of RANK, .* or unset RANK to let this process start them"):
            ranks_of_run(part, 1, 2)


def test_a_step_s_task_is_a_rank_although_a_world_of_one_is_exported() -> None:
    assert launched_ranks({**STEP, **EXPORTED}) == Ranks(0, 2, 0, 2)
    assert launched_ranks({**STEP, **TORCHRUN}) == Ranks(1, 2, 1, 2)


PTY = {**STEP, "SLURM_PTY_PORT": "40703"}
AS_TASK = 'os.environ["SLURM_TASK_PID"] = str(os.getpid()); '
IN_A_TERMINAL = "import pty, sys; pty.spawn(sys.argv[1:])"


@pytest.mark.parametrize(
    ("in_terminal", "first", "expected"),
    [
        (True, "", None),  # the shell of srun --pty bash
        (True, AS_TASK, Ranks(0, 2, 0, 2)),  # srun --pty bertbench train
        (False, "", Ranks(0, 2, 0, 2)),  # a step started from the shell, which inherits the variable
    ],
)
def test_only_a_shell_with_a_terminal_is_that_of_srun_pty(
    in_terminal: bool, first: str, expected: Ranks | None
) -> None:
    code = (
        f"import os; from bertbench.distributed.ranks import launched_ranks; {first}print(launched_ranks(os.environ))"
    )
    command = [sys.executable, "-c", code]
    if in_terminal:
        command = [sys.executable, "-c", IN_A_TERMINAL, *command]
    done = subprocess.run(
        command, env=os.environ | PTY, start_new_session=True, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert done.stdout.strip() == str(expected)


def test_a_task_s_cores_are_its_own_or_the_node_s() -> None:
    step = {**STEP, "SLURM_CPUS_ON_NODE": "64"}
    assert has_own_cores(step, available=8)
    assert not has_own_cores(step, available=64)  # --cpu-bind=none: ranks divide them
    assert not has_own_cores({**step, **TORCHRUN}, available=8)  # a launcher's ranks share what its shell has
    warning = withheld_cores(step, Ranks(0, 8, 0, 4), available=1, on_node=64)
    assert warning is not None
    assert "one core of this node's 64, which 4 ranks share; add --cpus-per-task=16 --cpu-bind=none" in warning
    assert withheld_cores(step, Ranks(0, 8, 0, 4), available=16, on_node=64) is None
    assert withheld_cores(step, Ranks(0, 8, 0, 4), available=1, on_node=4) is None
    assert withheld_cores({}, Ranks(0, 8, 0, 4), available=1, on_node=64) is None


POD = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "job-master-0", "MASTER_PORT": "23456"}


def test_a_pytorchjob_s_pods_are_ranks_if_that_is_unambiguous() -> None:
    assert ranks_of_run(POD, nodes=2, ranks_per_node=1) == Ranks(1, 2, 0, 1)
    assert ranks_of_run({**POD, "PET_NPROC_PER_NODE": "auto"}, 2, 1) == Ranks(1, 2, 0, 1)
    assert ranks_of_run(POD, nodes=1, ranks_per_node=2) == Ranks(1, 2, 1, 2)
    assert ranks_of_run({**POD, "WORLD_SIZE": "1", "RANK": "0"}, nodes=1, ranks_per_node=2) is None


@pytest.mark.parametrize(
    ("change", "nodes", "ranks_per_node"),
    [
        ({}, 2, 8),  # pods are nodes
        ({"PET_NPROC_PER_NODE": "2"}, 1, 2),  # one pod's RANK, although two processes make the run
        ({"WORLD_SIZE": "16"}, 2, 8),  # nodes or ranks
        ({"WORLD_SIZE": "3"}, 1, 2),
    ],
)
def test_other_pods_get_the_line_that_starts_them(change: dict[str, str], nodes: int, ranks_per_node: int) -> None:
    with pytest.raises(RunError, match=rf"PyTorchJob.*torchrun --nnodes={nodes} --nproc-per-node={ranks_per_node} "):
        ranks_of_run({**POD, **change}, nodes, ranks_per_node)
