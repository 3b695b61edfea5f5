"""Commands of the docs that no test of the docs runs, and why; tests/docs/test_commands.py runs all others.

A pattern is the command as the page shows it, without comments; `*` stands for anything, as in a shell.
"""

from fnmatch import fnmatchcase

from tests.docs.listing import Command

NOT_RUN = {
    "installs, builds, or runs all tests": ("make *", "pip install *", "docker build *"),
    "changes the reader's shell": ("mkdir *", "cd *", "export *", "source *"),
    "downloads gigabytes": ("bash <(curl *",),
    "reads MLPerf's files, which are gigabytes; tests/data/test_mlperf.py reads small ones": (
        "bertbench data verify mlperf",
        "bertbench data prepare --recipe mlperf *",
        "bertbench data * wiki_*",
        "bertbench data verify wiki *",
    ),
    "reads a folder in a published format; tests/data/test_convert.py reads small ones": (
        "bertbench data prepare --from-tfrecord *",
        "bertbench data prepare --from-hdf5 *",
    ),
    "reads a published checkpoint; tests/checkpoint/test_conversion.py and test_hugging_face.py read small ones": (
        "bertbench checkpoint *phase1.safetensors",
        "bertbench checkpoint *weights.safetensors*",
        "bertbench checkpoint import --from-hf bert-base-uncased *",
        "bertbench evaluate SYSTEM --weights phase1.safetensors",
        "bertbench train SYSTEM --weights phase1.safetensors",
        "bertbench finetune squad --system squad_a100_4gpu *",
    ),
    "reads weights that a run of minutes saves; tests/checkpoint/test_final_weights.py reads those of a small run": (
        "bertbench evaluate runs/cpu_demo/*",
        "bertbench checkpoint export runs/cpu_demo/*",
        "bertbench finetune squad --weights runs/cpu_demo/*",
        "bertbench train cpu_demo --weights runs/cpu_demo/*",
        "bertbench fill-mask *",
    ),
    "trains for minutes; tests/training/test_run.py trains a small model": (
        "./run_and_time.sh cpu_demo",
        "bertbench train cpu_parallel",
        "bertbench train cpu_demo --set power.measure=true",
    ),
    "reads the reader's own run; tests/test_cli.py judges and reports others": (
        "bertbench judge runs/cpu_demo/*",
        "bertbench report runs/cpu_demo",
    ),
    "goes on with a run that the reader interrupted; tests/checkpoint/test_interrupted.py interrupts one": (
        "bertbench train SYSTEM --resume *",
    ),
    "measures for minutes or hours; tests/lab measures small models": ("bertbench lab *",),
    "needs GPUs": ("bertbench preflight dgx*", "bertbench train dgx*"),
    "needs the file that its block sources; tests/docs/test_submitters.py runs it": (
        "./run_and_time.sh",
        "./run_and_time.sh --on slurm *",
    ),
    "needs Docker; tests/launch/test_launchers.py reads the command that is started": (
        "bertbench launch dgxa100_n1 --on docker --runs 10",
        "docker run *",
    ),
    "needs a cluster; tests/slurm starts the same on two virtual hosts": (
        "srun *",
        "bertbench launch mine.json --on slurm --runs 10",
        "bertbench launch dgxa100_n8 *",
    ),
    "needs 20 runs of one system; tests/report/test_reference.py writes them": ("bertbench rcp *",),
    "needs a tracker; tests/report/test_trackers.py has one": ("bertbench track *",),
    "needs a tree without changes; tests/results/test_build.py packages runs of one": (
        "bertbench package *",
        "python -m compliance package *",
        "bertbench report DIR/results *",
    ),
}
"""By reason: the patterns of the commands."""


def is_run(command: Command) -> bool:
    return not any(matches(command, pattern) for patterns in NOT_RUN.values() for pattern in patterns)


def matches(command: Command, pattern: str) -> bool:
    # a bracket of an option that may be left out is no set of characters
    return fnmatchcase(command.text, pattern.replace("[", "[[]"))
