"""Build the sbatch line from the system file: nodes, ranks, GPUs, wall time. launch/run.sub does the rest."""

import os
from pathlib import Path

from bertbench.common.errors import ConfigError
from bertbench.common.paths import LAUNCH, SCRIPTS_HOME, data_folder, runs_folder
from bertbench.launch.job import Job

SCRIPT = LAUNCH / "run.sub"
_SPARE_MINUTES = 5  # for the job's own start and end
_CONTAINERS = ("none", "pyxis", "apptainer", "charliecloud")


def command(job: Job) -> list[str]:
    """Return the sbatch line; the site sets partition, account and the like in SBATCH_* variables.

    Raises ConfigError for what run.sub would refuse in the job, after the wait in the queue.
    """
    _check_container()
    system = job.system
    whole_nodes = [f"--gpus-per-node={system.launch.ranks_per_node}", "--exclusive"]
    return [
        "sbatch",
        f"--job-name={system.name}",
        f"--nodes={system.hardware.number_of_nodes}",
        f"--ntasks-per-node={system.launch.ranks_per_node}",
        *(whole_nodes if system.launch.device == "cuda" else []),
        f"--time={job.runs * system.launch.walltime_minutes + _SPARE_MINUTES}",
        f"--export=ALL,RUNS={job.runs},RESTARTS={system.launch.max_restarts},BERTBENCH_HOME={SCRIPTS_HOME},"
        f"DATADIR={data_folder('').absolute()},LOGDIR={runs_folder().absolute()}",
        str(SCRIPT),
        job.name_or_path,
        *job.options,
    ]


def _check_container() -> None:
    kind, image = os.environ.get("CONTAINER") or "none", os.environ.get("CONT", "")
    if kind not in _CONTAINERS:
        raise ConfigError(f"CONTAINER is {kind!r}; expected {', '.join(_CONTAINERS[:-1])} or {_CONTAINERS[-1]}")
    if kind != "none" and not image:
        raise ConfigError(f"CONTAINER is {kind} and CONT isn't set; set it to an image")
    # pyxis and apptainer may name an image in a registry; a path begins with / or .
    is_path = kind == "charliecloud" or image.startswith(("/", "."))
    if kind != "none" and is_path and not Path(image).exists():
        raise ConfigError(f"CONT is {image}: found nothing there; make the image, or correct CONT (docs/running.md)")
