"""Profile a few steady steps by torch, for `train --profile`; write the trace and a table of where time goes."""

import json
import os
from pathlib import Path
from typing import Self

import torch
from torch.profiler import ProfilerActivity, profile, schedule

from bertbench.distributed.world import World
from bertbench.runs.pipeline_timeline import TRACE_FILE, add_to_trace

_WAIT = 5
_WARM_UP = 2
_ACTIVE = 5
PROFILED_STEPS = _WAIT + _WARM_UP + _ACTIVE


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

    def write(self, folder: Path) -> str:
        """Write trace.json and profile.json into a folder; return the table."""
        from bertbench.runs.step_trace import step_table, where  # noqa: PLC0415 - only profiled runs need it

        assert self._profile is not None
        trace = folder / TRACE_FILE
        self._profile.export_chrome_trace(str(trace))
        phases_ms = where(json.loads(trace.read_text(encoding="utf-8"))["traceEvents"])
        add_to_trace(trace, folder)
        content = {"steps": _ACTIVE, "step_ms": sum(phases_ms.values()), "parts_ms": phases_ms}
        (folder / "profile.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        return step_table(phases_ms, _ACTIVE)

    def __enter__(self) -> Self:
        if self._profile is not None:
            self._profile.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._profile is not None:
            self._profile.stop()
