"""Shorten runs that aren't results: those of `--smoke` and `--profile`, which take a few steps.

Their log has the event `not_a_result`, never ends with success, and is never named result_<n>.txt.
"""

from bertbench.common.errors import ConfigError
from bertbench.config import System
from bertbench.launch.options import Short
from bertbench.runs.profiling import PROFILED_STEPS

_SMOKE_STEPS = 5
_SMOKE_SNAPSHOT_STEP = 3


def shortened(system: System, short: Short) -> System:
    """Return the system with few steps and one evaluation at their end; its schedules don't change.

    A smoke run takes one snapshot if the system takes any. A profiled run takes none, to keep its steps steady. Raises
    ConfigError if the system has too few steps to be profiled.
    """
    if short == "profile" and system.max_steps < PROFILED_STEPS:
        raise ConfigError(
            f"--profile takes {PROFILED_STEPS} steps, but the system stops after {system.max_steps}; raise "
            "schedule.max_steps and evaluation.max_samples"
        )
    if short == "smoke":
        steps = _SMOKE_STEPS
        snapshot_step = _SMOKE_SNAPSHOT_STEP if system.checkpoint.every_steps else None
    else:
        steps = PROFILED_STEPS
        snapshot_step = None
    samples = steps * system.global_batch_size
    return system.model_copy(
        update={
            "checkpoint": system.checkpoint.model_copy(update={"every_steps": snapshot_step, "final_weights": False}),
            "evaluation": system.evaluation.model_copy(update={"max_samples": samples, "interval_samples": samples}),
        }
    )
