"""One machine with docker: launch/run_with_docker.sh."""

from bertbench.common.errors import ConfigError
from bertbench.common.paths import LAUNCH, data_folder, runs_folder
from bertbench.launch.job import Job

SCRIPT = LAUNCH / "run_with_docker.sh"


def command(job: Job) -> list[str]:
    """Return the command line of the runs. Raises ConfigError for a system of several nodes."""
    system = job.system
    if system.hardware.number_of_nodes > 1:
        raise ConfigError(
            f"{system.name} has {system.hardware.number_of_nodes} nodes, docker starts one; "
            "use --on slurm or kubernetes"
        )
    gpus = "all" if system.launch.device == "cuda" else "none"
    places = [f"DATADIR={data_folder('').absolute()}", f"LOGDIR={runs_folder().absolute()}"]
    return ["env", f"RUNS={job.runs}", f"GPUS={gpus}", *places, str(SCRIPT), job.name_or_path, *job.options]
