"""Find this process's rank in the variables that launchers set. No other file reads them.

torchrun and Slurm's srun set a process's rank. An interactive shell, a batch script and the processes that they start
inherit such variables without being ranks: they start the ranks of a run themselves. This file doesn't import torch,
because a command needs it before it loads torch.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from bertbench.common.errors import RunError

AGENT = "TORCHELASTIC_RUN_ID"
"""Variable that torch's elastic agent, in torchrun or in `bertbench launch`, sets for the ranks that it starts."""
_TORCHRUN: tuple[str, ...] = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
_SLURM: tuple[str, ...] = (
    "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE", "SLURM_NODEID",
)  # fmt: skip
_STEPS_WITHOUT_TASKS = 0xFFFF_FFF0  # Slurm's numbers for batch scripts and the shells of salloc begin here
_POD = ("PET_NPROC_PER_NODE", "PET_NODE_RANK")  # Kubeflow sets them: RANK then counts pods


@dataclass(frozen=True)
class Ranks:
    """A process's rank and the number of ranks, in the run and on its node."""

    rank: int
    size: int
    local_rank: int
    local_size: int


def launched_ranks(environment: Mapping[str, str]) -> Ranks | None:
    """Return this process's ranks as torchrun or Slurm set them; None if neither started it.

    RANK=0 and WORLD_SIZE=1 without torchrun's other variables don't come from a launcher; somebody exported them.
    Raises RunError if a launcher's variable is missing, isn't a number, or is out of range.
    """
    return _torchrun_ranks(environment) or _slurm_ranks(environment)


def ranks_of_run(environment: Mapping[str, str], nodes: int, ranks_per_node: int) -> Ranks | None:
    """Return this process's ranks in a run on `nodes`; None if it isn't a rank and starts the run's ranks itself.

    If a Slurm step has only one task, that is a rank only if the run has one rank; otherwise it is the shell of `srun
    --pty`. A PyTorchJob of Kubeflow's training operator sets RANK and WORLD_SIZE without LOCAL_RANK. These give the
    place on the node, if they can mean only one thing.
    Raises RunError as `launched_ranks` does, or if they can mean several things.
    """
    torchrun = _torchrun_ranks(_with_local_rank(environment, nodes, ranks_per_node))
    if torchrun is not None:
        return torchrun
    slurm = _slurm_ranks(environment)
    alone = slurm is not None and slurm.size == 1
    return None if alone and nodes * ranks_per_node > 1 else slurm


def has_own_cores(environment: Mapping[str, str], available: int) -> bool:
    """Return whether srun keeps this rank to its own cores: then fewer are `available` than the job has on the node."""
    on_node = environment.get("SLURM_CPUS_ON_NODE", "")
    by_slurm = "RANK" not in environment and "SLURM_STEP_ID" in environment
    return by_slurm and on_node.isdecimal() and available < int(on_node)


def withheld_cores(environment: Mapping[str, str], ranks: Ranks, available: int, on_node: int) -> str | None:
    """Return a warning if srun gave this rank only one core although the node has more for each; otherwise None."""
    share = on_node // ranks.local_size
    if "RANK" in environment or "SLURM_STEP_ID" not in environment or available > 1 or share < 2:
        return None
    return (
        f"srun gave rank {ranks.rank} one core of this node's {on_node}, which {ranks.local_size} ranks share; add "
        f"--cpus-per-task={share} --cpu-bind=none to the srun line"
    )


def _torchrun_ranks(environment: Mapping[str, str]) -> Ranks | None:
    if "RANK" not in environment or _exported_world_of_one(environment):
        return None
    return _checked("torchrun", _TORCHRUN, [environment.get(name) for name in _TORCHRUN])


def _exported_world_of_one(environment: Mapping[str, str]) -> bool:
    """Return whether RANK=0 and WORLD_SIZE=1 are set by hand: a launcher would also set the place on the node."""
    rank, size, *places = (environment.get(name) for name in _TORCHRUN)
    return (rank, size) == ("0", "1") and None in places


def _slurm_ranks(environment: Mapping[str, str]) -> Ranks | None:
    if "SLURM_PROCID" not in environment or "SLURM_STEP_ID" not in environment:
        return None  # a batch script is not a task of srun
    step = environment["SLURM_STEP_ID"]
    if step.isdecimal() and int(step) >= _STEPS_WITHOUT_TASKS:
        return None
    rank, size, local_rank, tasks, node = (environment.get(name, "") for name in _SLURM)
    local_size: str | None = None
    with suppress(ValueError, IndexError):
        local_size = _tasks_per_node(tasks)[int(node)]
    ranks = _checked("Slurm", _SLURM, [rank, size, local_rank, local_size])
    return None if ranks.size > 1 and _outside_of_tasks(environment, ranks) else ranks


def _outside_of_tasks(environment: Mapping[str, str], ranks: Ranks) -> bool:
    """Return whether this process inherited a step's variables: from `srun --pty`, or in a batch script from there.

    srun gives a terminal only to the first task of a step with --pty. A task's SLURM_GTIDS names all tasks of its node.
    """
    batch_script = environment.get("SLURM_GTIDS") == "0" and ranks.local_size > 1
    is_task = environment.get("SLURM_TASK_PID") == str(os.getpid())
    in_shell = "SLURM_PTY_PORT" in environment and not is_task and _has_terminal()
    return batch_script or in_shell


def _has_terminal() -> bool:
    """Return whether this process belongs to a terminal, even if its streams are redirected."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _tasks_per_node(text: str) -> list[str]:
    """Expand Slurm's short form: `2(x3),1` becomes 2, 2, 2, 1."""
    counts = []
    for group in text.split(","):
        tasks, _, repeated = group.partition("(x")
        counts += [tasks] * int(repeated.rstrip(")") or 1)
    return counts


def _checked(launcher: str, names: tuple[str, ...], values: list[str | None]) -> Ranks:
    """Return the ranks with these values of rank, size, local rank and local size. Raises RunError if they can't be."""
    try:
        rank, size, local_rank, local_size = (int(value or "") for value in values)
    except ValueError as error:
        raise RunError(
            f"{launcher} must set all of {', '.join(names)} to whole numbers; start the ranks by torchrun or srun, or "
            f"unset {names[0]} to let this process start them"
        ) from error
    if not (0 <= rank < size and 0 <= local_rank < local_size <= size):
        raise RunError(
            f"{launcher} says rank {rank} of {size}, {local_rank} of {local_size} on its node; "
            f"ranks count from 0 to one less than their number: correct {', '.join(names)}"
        )
    return Ranks(rank, size, local_rank, local_size)


def _with_local_rank(environment: Mapping[str, str], nodes: int, ranks_per_node: int) -> Mapping[str, str]:
    """Return the variables with LOCAL_RANK and LOCAL_WORLD_SIZE, if only RANK and WORLD_SIZE are set."""
    rank, size = environment.get("RANK"), environment.get("WORLD_SIZE")
    if rank is None or size in (None, "1") or "LOCAL_RANK" in environment or "LOCAL_WORLD_SIZE" in environment:
        return environment
    counts_pods = any(name in environment for name in _POD)
    if size == str(nodes) and ranks_per_node == 1:
        return {**environment, "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    if size == str(ranks_per_node) and nodes == 1 and not counts_pods:
        return {**environment, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": size}
    raise RunError(
        f"RANK is {rank}, WORLD_SIZE {size} and LOCAL_RANK isn't set, as in a PyTorchJob, where RANK counts pods; the "
        f"run has {nodes} x {ranks_per_node} ranks. Start each pod with `torchrun --nnodes={nodes} "
        f"--nproc-per-node={ranks_per_node} --node-rank=$RANK --master-addr=$MASTER_ADDR --master-port=$MASTER_PORT "
        "--no-python run_and_time.sh SYSTEM`, set LOCAL_RANK and LOCAL_WORLD_SIZE for each process, or unset RANK to "
        "start the ranks here"
    )
