"""Build the sbatch line from the system file: nodes, ranks, GPUs, wall time. launch/run.sub does the rest."""

from bertbench.common.paths import LAUNCH, SCRIPTS_HOME, data_folder, runs_folder
from bertbench.launch.job import Job

SCRIPT = LAUNCH / "run.sub"
_SPARE_MINUTES = 5  # for the job's own start and end


def command(job: Job) -> list[str]:
    """Return the sbatch line; the site sets partition, account and the like in SBATCH_* variables."""
    system = job.system
    gpus = [f"--gpus-per-node={system.launch.ranks_per_node}"] if system.launch.device == "cuda" else []
    return [
        "sbatch",
        f"--job-name={system.name}",
        f"--nodes={system.hardware.number_of_nodes}",
        f"--ntasks-per-node={system.launch.ranks_per_node}",
        *gpus,
        *(["--exclusive"] if gpus else []),
        f"--time={job.runs * system.launch.walltime_minutes + _SPARE_MINUTES}",
        f"--export=ALL,RUNS={job.runs},RESTARTS={system.launch.max_restarts},BERTBENCH_HOME={SCRIPTS_HOME},"
        f"DATADIR={data_folder('').absolute()},LOGDIR={runs_folder().absolute()}",
        str(SCRIPT),
        job.name_or_path,
        *job.options,
    ]
