"""One machine with docker: launch/run_with_docker.sh."""

import os

from bertbench.common.errors import ConfigError
from bertbench.common.paths import LAUNCH
from bertbench.launch.image import image_for
from bertbench.launch.job import Command, Job, folders, record, site_variables

SCRIPT = LAUNCH / "run_with_docker.sh"


def command(job: Job) -> Command:
    """Return the command of the runs. Raises ConfigError for a system of several nodes, or if CONT is no image."""
    system = job.system
    if system.hardware.number_of_nodes > 1:
        raise ConfigError(
            f"{system.name} has {system.hardware.number_of_nodes} nodes, docker starts one; "
            "use --on slurm or kubernetes"
        )
    image = os.environ.get("CONT")
    runs = str(job.runs)
    variables = {
        "NEXP": runs,
        "RUNS": runs,  # a user's own would differ
        "GPUS": os.environ.get("GPUS") or ("all" if system.launch.device == "cuda" else "none"),
        **folders(),
        **({"CONT": image_for("docker", image)} if image else {}),
        **site_variables("EVALDIR"),
        **record(job),
    }
    return Command([str(SCRIPT), job.name_or_path, *job.options], variables)
