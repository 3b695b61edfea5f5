"""torchrun on each node of a machine without a scheduler."""

from bertbench.common.paths import SCRIPTS_HOME
from bertbench.launch.job import Job, folders, site_variables

_SCRIPT = SCRIPTS_HOME / "run_and_time.sh"


def commands(job: Job) -> list[list[str]]:
    """Return one line a node; start them within launch.timeout_s of each other. MASTER_ADDR is the first node's.

    A single node needs no torchrun: `bertbench launch` is its agent.
    """
    nodes, launch = job.system.hardware.number_of_nodes, job.system.launch
    if nodes == 1:
        return [[str(_SCRIPT), job.name_or_path, "--runs", str(job.runs), *job.options]]
    return [torchrun(job, str(node), "$MASTER_ADDR", launch.port or 29500) for node in range(nodes)]


def variables() -> dict[str, str]:
    """Return what the lines read of this shell's variables: every other shell needs them, too."""
    exported = site_variables("DATADIR", "LOGDIR")
    return {**exported, **{name: path for name, path in folders().items() if name in exported}}


def restarts(job: Job) -> list[str]:
    """Return torchrun's option for launch.max_restarts."""
    count = job.system.launch.max_restarts
    return [f"--max-restarts={count}"] if count else []


def torchrun(job: Job, node_rank: str, address: str, port: int, script: str | None = None) -> list[str]:
    """Return the line of one node, for one run: a new torchrun makes the next, so that no rank is left over."""
    return [
        "torchrun",
        f"--nnodes={job.system.hardware.number_of_nodes}",
        f"--nproc-per-node={job.system.launch.ranks_per_node}",
        f"--node-rank={node_rank}",
        f"--master-addr={address}",
        f"--master-port={port}",
        *restarts(job),
        "--no-python",
        script or str(_SCRIPT),
        job.name_or_path,
        *job.options,
    ]
