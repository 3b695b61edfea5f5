"""Write a system as the shell file that published submissions source, such as config_DGXA100_8x8x48x1.sh.

The file exports the variables that launch/honour.py reads. The values are those of the system, except for the time
limit, which is computed.
"""

import argparse
import math
import shlex
from pathlib import Path
from typing import NamedTuple

from bertbench.common.errors import ConfigError
from bertbench.config import System, system_names
from bertbench.launch.exported_settings import value_in_run
from bertbench.launch.honour import honour
from bertbench.launch.submission_name import SubmissionName, name_of, shape_of, shipped_system
from bertbench.launch.time_limits import SPARE_MINUTES
from bertbench.launch.variables import BATCH_SETTINGS, SETTINGS
from bertbench.plan.estimate import estimate_run, trains_bert_large

_MARGIN = 2  # factor on the estimate
_INIT_MINUTES = 10  # for initialisation and compilation, which an estimate leaves out
_ROUNDED_TO = 5
_TIME_LIMIT = "launch.walltime_minutes"
_MACHINE = ("DGXSYSTEM", "DGXNNODES", "DGXNGPU")
_BATCH = ("BATCHSIZE", "GRADIENT_STEPS")
_OPTIMIZER = (
    "LR", "OPT_LAMB_BETA_1", "OPT_LAMB_BETA_2", "WEIGHT_DECAY_RATE", "MAX_STEPS", "WARMUP_STEPS", "START_WARMUP_STEP",
)  # fmt: skip
_EVALUATION = ("EVAL_ITER_START_SAMPLES", "EVAL_ITER_SAMPLES", "MAX_SAMPLES_TERMINATION")


class ShellConfiguration(NamedTuple):
    """A file for shells to source."""

    file_name: str
    exports: dict[str, str]
    """The values by variable, without WALLTIME, which the shell computes."""
    text: str


def shell_configuration(system: System) -> ShellConfiguration:
    """Return the file of a system.

    Raises ConfigError for a system that splits its model over GPUs, and for settings given by --set that no variable
    expresses.
    """
    if system.parallel.splits:
        raise ConfigError(
            f"{system.name} splits the model over GPUs (parallel), and BATCHSIZE counts samples per GPU; start it with "
            f"`bertbench launch {system.argument} --on slurm`"
        )
    dgxsystem, name = _names(system)
    exports = {
        "DGXSYSTEM": dgxsystem,
        "DGXNNODES": str(system.hardware.number_of_nodes),
        "DGXNGPU": str(system.launch.ranks_per_node),
    }
    for variable in (*_BATCH, *_OPTIMIZER, *_EVALUATION):
        # the first interval of published runs may differ, ours doesn't
        setting = SETTINGS["EVAL_ITER_SAMPLES" if variable == "EVAL_ITER_START_SAMPLES" else variable]
        value = value_in_run(system, setting.name)
        if value is not None:
            exports[variable] = str(value)
    _check_meaning(system, exports)
    minutes, computed = _time_limit(system)
    lines = [
        f"# {system.description or system.name}",
        f"# {_shape_in_words(system)}",
        "#",
        *_session(f"config_{name}.sh", system),
        "# shellcheck shell=sh",
        "",
        *_exports("Machine", _MACHINE, exports),
        *_exports("Samples per GPU and step, and number of parts that a GPU computes them in", _BATCH, exports),
        *_exports("Optimizer and schedule", _OPTIMIZER, exports),
        *_exports("Samples before the first evaluation, between evaluations, and at most", _EVALUATION, exports),
        f"# Minutes for a run, and for the job; export NEXP before you source this file. {computed}",
        f"export WALLTIME_MINUTES={minutes}",
        f"export WALLTIME=$((${{NEXP:-1}} * WALLTIME_MINUTES + {SPARE_MINUTES}))",
    ]
    return ShellConfiguration(
        f"config_{name}.sh", {**exports, "WALLTIME_MINUTES": str(minutes)}, "\n".join(lines) + "\n"
    )


def _names(system: System) -> tuple[str, str]:
    """Return the value of DGXSYSTEM, and the name that the file's name contains.

    Both are the published name of a system that comes with the project, if that name refers to this system.
    """
    name = name_of(system)
    if system.argument not in system_names():
        return str(Path(system.argument).absolute()), name
    if _means(name, system):
        return name, name
    return system.name, f"{system.name}_{shape_of(system)}"


def _means(name: str, system: System) -> bool:
    submission = SubmissionName.parse(name)
    if submission is None:
        return False
    try:
        return shipped_system(submission) == system.name
    except ConfigError:  # no system of this name comes with the project
        return False


def _check_meaning(system: System, exports: dict[str, str]) -> None:
    """Raise ConfigError if --set changed a setting that no variable can carry, or that no variable may change."""
    remedy = f"put it into a system file that extends {system.argument}, and export that"
    said = {*(setting.name for setting in SETTINGS.values()), *BATCH_SETTINGS, _TIME_LIMIT}
    for setting, option in system.given.items():
        if setting not in said:
            raise ConfigError(f"{option}: no variable of a configuration file sets {setting}; {remedy}")
    arguments = argparse.Namespace(
        system=None, runs=None, seed=None, overrides=[], on="slurm", dry_run=True, close=None
    )
    try:
        honour(arguments, exports)
    except ConfigError as error:
        raise ConfigError(f"a run would refuse this configuration file: {error}; {remedy}") from error


def _shape_in_words(system: System) -> str:
    """Return what the numbers in the file's name mean."""
    nodes, ranks = system.hardware.number_of_nodes, system.launch.ranks_per_node
    steps = system.data.gradient_accumulation_steps
    processor = "GPU" if system.launch.device == "cuda" else "rank"
    return (
        f"{_counted(nodes, 'node')} x {_counted(ranks, processor)} x {system.samples_per_pass} samples x "
        f"{_counted(steps, 'gradient step')}: {system.global_batch_size:,} samples per step"
    )


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _session(file_name: str, system: System) -> list[str]:
    """Return comments that say how to use the file."""
    lines = [f"#   source {file_name}", "#   sbatch -N $DGXNNODES -t $WALLTIME run.sub"]
    if system.hardware.number_of_nodes == 1:
        lines.append("# Without Slurm, use run_and_time.sh instead of sbatch.")
    options = "".join(f" {option}" for option in system.given.values())
    command = f"bertbench config export {shlex.quote(system.argument)} --shell{options}"
    return [
        *lines,
        "# You may change values: bertbench uses them, or refuses them by name. This file is the output of",
        f"#   {command}",
    ]


def _exports(title: str, variables: tuple[str, ...], exports: dict[str, str]) -> list[str]:
    """Return a paragraph of the file; it unsets a variable without a value, which another file may have exported."""
    lines = [f"# {title}"]
    for variable in variables:
        if variable in exports:
            lines.append(f"export {variable}={shlex.quote(exports[variable])}")
        else:
            lines.append(f"unset {variable}")
    return [*lines, ""]


def _time_limit(system: System) -> tuple[int, str]:
    """Return the minutes that a run may take, and how they were computed."""
    estimated = None if _TIME_LIMIT in system.given else _estimated_minutes(system)
    if estimated is None:
        return system.launch.walltime_minutes, f"From the system file ({_TIME_LIMIT})."
    needed = _MARGIN * estimated + _INIT_MINUTES
    minutes = _ROUNDED_TO * math.ceil(needed / _ROUNDED_TO)
    return minutes, (
        f"Computed, not measured:\n# {_MARGIN} x {estimated:.1f}, as `bertbench estimate` expects, "
        f"plus {_INIT_MINUTES} for initialisation, rounded up to a multiple of {_ROUNDED_TO}."
    )


def _estimated_minutes(system: System) -> float | None:
    """Return the estimated time to train; None without published results of this model on these GPUs."""
    return estimate_run(system).minutes if trains_bert_large(system) else None
