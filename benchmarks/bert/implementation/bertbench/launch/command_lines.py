"""Write the command lines by which other launchers start a job: sbatch, docker, torchrun on each node.

Each calls a script of the project: Slurm run.sub, docker launch/run_with_docker.sh, torchrun run_and_time.sh.
`bertbench launch` prints or runs the lines. The ranks that they start meet as distributed/rendezvous.py describes.
"""

import os
import re
from dataclasses import dataclass, field
from typing import NamedTuple, get_args

from bertbench.common.errors import ConfigError
from bertbench.common.paths import LAUNCH, SCRIPTS_HOME, data_path, runs_folder
from bertbench.config import System
from bertbench.launch.image import Starter, can_start, image_for, starters_of
from bertbench.launch.run_options import RUN, RunOptions
from bertbench.launch.variables import SPARE_MINUTES, Variables

SLURM_SCRIPT = (LAUNCH / "run.sub").resolve()  # in a checkout, a link to the script in benchmarks/bert/
DOCKER_SCRIPT = LAUNCH / "run_with_docker.sh"
_RUN_SCRIPT = SCRIPTS_HOME / "run_and_time.sh"

_LIBRARY_PREFIXES = ("NCCL_", "GLOO_", "UCX_", "TORCH_NCCL_")
_READ_BY_RANKS = ("CXX", "XDG_CACHE_HOME", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "MLFLOW_TRACKING_URI")
_SLURM_CONTAINERS: tuple[Starter, ...] = get_args(Starter)
_READ_BY_RUN_SUB = ("CLEAR_CACHES", "EVALDIR", "GPUS", "MASTER_ADDR", "MASTER_PORT", "REQUEUE")
_SYSTEM_DECIDES = ("--nodes", "--ntasks", "--ntasks-per-node", "--gpus-per-node", "-N", "-n")
"""Options of sbatch that the system file decides."""
_LAUNCH_DECIDES = ("--export", "--wrap")
"""Options of sbatch that `launch` decides, because run.sub depends on them."""
_DEFAULT_PORT = 29500


@dataclass(frozen=True)
class Job:
    """Runs of a system, as the user asked for them."""

    system: System
    name_or_path: str
    options: list[str]
    """Options for `bertbench train`: overrides and seed."""
    runs: int
    variables: Variables = field(default_factory=Variables)
    """What became of the variables that the user exported."""
    sbatch_options: list[str] = field(default_factory=list)


class CommandLine(NamedTuple):
    """A command that works in any shell: its words, and the variables that it reads."""

    words: list[str]
    variables: dict[str, str]

    def line(self) -> list[str]:
        """Return the words of the whole command."""
        pairs = [f"{name}={value}" for name, value in self.variables.items()]
        return ["env", *pairs, *self.words] if pairs else self.words


def slurm_command(job: Job) -> CommandLine:
    """Return the sbatch command with what run.sub reads; SBATCH_* variables hold the site's partition and account.

    Nodes, ranks, GPUs and wall time come from the system file. Raises ConfigError for what run.sub would refuse in the
    job, after the wait in the queue.
    """
    system = job.system
    gpu_options = []
    if system.launch.device == "cuda":
        gpu_options = [f"--gpus-per-node={system.launch.ranks_per_node}", "--exclusive"]
    minutes = job.runs * system.launch.walltime_minutes + SPARE_MINUTES
    words = [
        "sbatch",
        f"--job-name={system.name}",
        f"--nodes={system.hardware.number_of_nodes}",
        f"--ntasks-per-node={system.launch.ranks_per_node}",
        *gpu_options,
        f"--time={job.variables.walltime or minutes}",
        "--export=ALL",
        *_checked_options(job.sbatch_options),
        str(SLURM_SCRIPT),
        job.name_or_path,
        *job.options,
    ]
    variables = {
        **_site_variables(*_READ_BY_RUN_SUB, prefixes=("SBATCH_",)),
        **_slurm_container(),
        **_folders(),
        "BERTBENCH_HOME": os.environ.get("BERTBENCH_HOME") or str(SCRIPTS_HOME),
        "NEXP": str(job.runs),
        "RESTARTS": _slurm_restarts(job),
        **_record(job),
    }
    return CommandLine(words, variables)


def _checked_options(options: list[str]) -> list[str]:
    """Return the user's options of sbatch. Raises ConfigError for those that the system file or run.sub decides."""
    for option in options:
        name = option.partition("=")[0] if option.startswith("--") else option[:2]
        if name in _SYSTEM_DECIDES:
            raise ConfigError(
                f"{option} after --: the system decides nodes and ranks; leave it out, name another system, or write "
                "one with `bertbench config init`"
            )
        if name in _LAUNCH_DECIDES:
            raise ConfigError(f"{option} after --: the job needs its own script and variables; leave it out")
    if options and not options[0].startswith("-"):
        raise ConfigError(f"{options[0]} after --: expected an option of sbatch, such as --partition=NAME")
    return options


def _slurm_restarts(job: Job) -> str:
    """Return how often a run resumes in its job: as --set says, or RESTARTS, or the system file."""
    set_by_option = any(option.startswith("launch.max_restarts=") for option in job.options)
    exported = "" if set_by_option else os.environ.get("RESTARTS", "")
    if exported and not re.fullmatch("[0-9]+", exported):
        raise ConfigError(f"RESTARTS is {exported!r}; set it to a number of at least 0")
    return exported or str(job.system.launch.max_restarts)


def _slurm_container() -> dict[str, str]:
    """Return CONTAINER and CONT as run.sub takes them. Raises ConfigError if they don't name an image."""
    kind = os.environ.get("CONTAINER", "")
    image = os.environ.get("CONT", "")
    if not kind:
        kind = _starter_here(image) if image else "none"
    if kind == "none":
        return {"CONTAINER": "none"}
    starter = next((known for known in _SLURM_CONTAINERS if known == kind), None)
    if starter is None:
        *others, last = _SLURM_CONTAINERS
        raise ConfigError(f"CONTAINER is {kind!r}; expected none, {', '.join(others)} or {last}")
    if not image:
        raise ConfigError(f"CONTAINER is {kind}, but CONT isn't set; set it to an image")
    return {"CONTAINER": kind, "CONT": image_for(starter, image)}


def _starter_here(image: str) -> Starter:
    """Return what starts an image on this machine, and therefore probably on the nodes; pyxis if nothing does.

    Raises ConfigError for an image that pyxis doesn't start.
    """
    starters = starters_of(image)
    for starter in starters:
        if can_start(starter):
            return starter
    if "pyxis" not in starters:
        raise ConfigError(f"CONT is {image}, but CONTAINER isn't set; set CONTAINER to apptainer or charliecloud")
    return "pyxis"  # as published submissions start their CONT


def docker_command(job: Job) -> CommandLine:
    """Return the command of the runs. Raises ConfigError for a system of several nodes, or if CONT isn't an image."""
    system = job.system
    if system.hardware.number_of_nodes > 1:
        raise ConfigError(
            f"{system.name} has {system.hardware.number_of_nodes} nodes, but docker starts only one; use --on slurm"
        )
    variables = {
        "NEXP": str(job.runs),
        "GPUS": os.environ.get("GPUS") or ("all" if system.launch.device == "cuda" else "none"),
        **_folders(),
    }
    image = os.environ.get("CONT")
    if image:
        variables["CONT"] = image_for("docker", image)
    variables |= {**_site_variables("EVALDIR"), **_record(job)}
    return CommandLine([str(DOCKER_SCRIPT), job.name_or_path, *job.options], variables)


def torchrun_lines(job: Job) -> list[list[str]]:
    """Return one line per node, to be started within launch.timeout_s of each other. MASTER_ADDR is the first node's.

    A single node needs no torchrun, because `bertbench launch` is its agent.
    """
    nodes = job.system.hardware.number_of_nodes
    if nodes == 1:
        return [[str(_RUN_SCRIPT), job.name_or_path, "--runs", str(job.runs), *job.options]]
    return [_torchrun_line(job, node) for node in range(nodes)]


def _torchrun_line(job: Job, node: int) -> list[str]:
    """Return the line of one node for one run; each run needs a new torchrun, so that no rank is left over."""
    system = job.system
    restarts = []
    if system.launch.max_restarts:
        restarts.append(f"--max-restarts={system.launch.max_restarts}")
    return [
        "torchrun",
        f"--nnodes={system.hardware.number_of_nodes}",
        f"--nproc-per-node={system.launch.ranks_per_node}",
        f"--node-rank={node}",
        "--master-addr=$MASTER_ADDR",
        f"--master-port={system.launch.port or _DEFAULT_PORT}",
        *restarts,
        "--no-python",
        str(_RUN_SCRIPT),
        job.name_or_path,
        *job.options,
    ]


def torchrun_variables() -> dict[str, str]:
    """Return the variables of this shell that the lines read; the shells of the other nodes need them, too."""
    exported = _site_variables("DATADIR", "LOGDIR", "MASTER_ADDR", "CUDA_VISIBLE_DEVICES")
    absolute_folders = {name: path for name, path in _folders().items() if name in exported}
    return exported | absolute_folders


def _site_variables(*names: str, prefixes: tuple[str, ...] = ()) -> dict[str, str]:
    """Return which of these variables, and of those that ranks and libraries read, the user exported with a value."""
    names = (*names, *_READ_BY_RANKS)
    all_prefixes = (*prefixes, *_LIBRARY_PREFIXES)
    return {
        name: value for name, value in sorted(os.environ.items())
        if value and (name in names or name.startswith(all_prefixes))
    }  # fmt: skip


def _folders() -> dict[str, str]:
    """Return the variables by which other processes find data and results."""
    return {"DATADIR": str(data_path("").absolute()), "LOGDIR": str(runs_folder().absolute())}


def _record(job: Job) -> dict[str, str]:
    """Return the variable that records what this process has honoured, so that the job doesn't honour it again."""
    return {RUN: RunOptions(exported=job.variables.values).text()}
