"""One machine with docker: launch/run_with_docker.sh."""

from bertbench.common.errors import ConfigError
from bertbench.common.paths import REPOSITORY
from bertbench.launch.job import Job

SCRIPT = REPOSITORY / "benchmarks" / "bert" / "launch" / "run_with_docker.sh"


def command(job: Job) -> list[str]:
    """The line that makes the runs. Raises ConfigError for a system of several nodes."""
    system = job.system
    if system.hardware.number_of_nodes > 1:
        raise ConfigError(
            f"{system.name} has {system.hardware.number_of_nodes} nodes, docker starts one; "
            "use --on slurm or kubernetes"
        )
    gpus = "all" if system.launch.device == "cuda" else "none"
    return ["env", f"RUNS={job.runs}", f"GPUS={gpus}", str(SCRIPT), job.name_or_path, *job.options]
