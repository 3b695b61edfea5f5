"""Build the sbatch line from the system file: nodes, ranks, GPUs, wall time. launch/run.sub does the rest."""

import os
import re
from pathlib import Path

from bertbench.common.errors import ConfigError
from bertbench.common.paths import LAUNCH, SCRIPTS_HOME
from bertbench.launch.image import Starter, image_for
from bertbench.launch.job import Command, Job, folders, record, site_variables

SCRIPT = LAUNCH / "run.sub"
_SPARE_MINUTES = 5  # for the job's own start and end
_CONTAINERS: tuple[Starter, ...] = ("pyxis", "apptainer", "charliecloud")
_OF_RUN_SUB = ("CLEAR_CACHES", "EVALDIR", "MASTER_ADDR", "MASTER_PORT", "REQUEUE")


def command(job: Job) -> Command:
    """Return the sbatch command, with all that run.sub reads; SBATCH_* variables hold the site's partition and account.

    Raises ConfigError for what run.sub would refuse in the job, after the wait in the queue.
    """
    system = job.system
    whole_nodes = [f"--gpus-per-node={system.launch.ranks_per_node}", "--exclusive"]
    runs = str(job.runs)
    words = [
        "sbatch",
        f"--job-name={system.name}",
        f"--nodes={system.hardware.number_of_nodes}",
        f"--ntasks-per-node={system.launch.ranks_per_node}",
        *(whole_nodes if system.launch.device == "cuda" else []),
        f"--time={job.variables.walltime or job.runs * system.launch.walltime_minutes + _SPARE_MINUTES}",
        "--export=ALL",
        str(SCRIPT),
        job.name_or_path,
        *job.options,
    ]
    variables = {
        **site_variables(*_OF_RUN_SUB, prefixes=("SBATCH_",)),
        **_container(),
        **folders(),
        "BERTBENCH_HOME": os.environ.get("BERTBENCH_HOME") or str(SCRIPTS_HOME),
        "NEXP": runs,
        "RUNS": runs,  # a user's own would differ
        "RESTARTS": _restarts(job),
        **record(job),
    }
    return Command(words, variables)


def _restarts(job: Job) -> str:
    """Return how often a run resumes in its job: as --set says, or RESTARTS, or the system file."""
    given = any(option.startswith("launch.max_restarts=") for option in job.options)
    exported = "" if given else os.environ.get("RESTARTS", "")
    if exported and not re.fullmatch("[0-9]+", exported):
        raise ConfigError(f"RESTARTS is {exported!r}; set it to a number of at least 0")
    return exported or str(job.system.launch.max_restarts)


def _container() -> dict[str, str]:
    """Return CONTAINER and CONT as run.sub takes them. Raises ConfigError if they don't name an image."""
    kind, image = os.environ.get("CONTAINER", ""), os.environ.get("CONT", "")
    if not kind and image and (Path(image).is_dir() or image.endswith(".sif")):
        raise ConfigError(f"CONT is {image} and CONTAINER isn't set; set CONTAINER to apptainer or charliecloud")
    kind = kind or ("pyxis" if image else "none")  # as published submissions start their CONT
    if kind == "none":
        return {"CONTAINER": "none"}
    starter = next((known for known in _CONTAINERS if known == kind), None)
    if starter is None:
        raise ConfigError(f"CONTAINER is {kind!r}; expected none, {', '.join(_CONTAINERS[:-1])} or {_CONTAINERS[-1]}")
    if not image:
        raise ConfigError(f"CONTAINER is {kind} and CONT isn't set; set it to an image")
    return {"CONTAINER": kind, "CONT": image_for(starter, image)}
