"""Shorten runs that aren't results: those of `--smoke` and `--profile`, which take a few steps; profile the latter.

Their log has the event `not_a_result`, never ends with success, and is never named result_<n>.txt.
"""

import json
import os
from typing import Self

import torch
from torch.profiler import ProfilerActivity, profile, schedule

from bertbench.common.errors import ConfigError
from bertbench.config import System
from bertbench.distributed.world import World
from bertbench.launch.run_options import Short
from bertbench.runs.files import ResultFiles

_WAIT = 5
_WARM_UP = 2
_ACTIVE = 5
PROFILED_STEPS = _WAIT + _WARM_UP + _ACTIVE
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


class Profiler:
    """Profiles the steps from PROFILED_STEPS - 5 to the last, on every rank; does nothing if off."""

    def __init__(self, world: World, on: bool) -> None:
        if on:
            os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # otherwise torch's tracer prints four lines on each rank
        self._cuda = world.device.type == "cuda"
        activities = [ProfilerActivity.CPU]
        if self._cuda:
            activities.append(ProfilerActivity.CUDA)
        phases = schedule(wait=_WAIT, warmup=_WARM_UP, active=_ACTIVE, repeat=1)
        self._profile = profile(activities=activities, schedule=phases, acc_events=True) if on else None
        self._steps = 0

    def step(self) -> None:
        """Mark the end of a step."""
        if self._profile is None:
            return
        self._steps += 1
        if self._cuda and self._steps in (_WAIT + _WARM_UP, PROFILED_STEPS):
            torch.cuda.synchronize()  # so that the counted steps don't include device work of other steps
        self._profile.step()

    def write(self, files: ResultFiles) -> str:
        """Add what was profiled to a run's trace; return a table of the run's phases."""
        from bertbench.runs.straggler import phase_table  # noqa: PLC0415 - a run reads no files

        assert self._profile is not None
        exported = files.folder / "profiled.json"
        self._profile.export_chrome_trace(str(exported))
        content = json.loads(exported.read_text(encoding="utf-8"))
        exported.unlink()
        base_us = content.get("baseTimeNanoseconds", 0) / 1e3
        with files.open_trace() as trace:
            trace.add(
                event | {"ts": base_us + event["ts"]} if "ts" in event else event for event in content["traceEvents"]
            )
        return phase_table(files.log)

    def __enter__(self) -> Self:
        if self._profile is not None:
            self._profile.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._profile is not None:
            self._profile.stop()
