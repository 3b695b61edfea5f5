"""Read a run's trace.json once: what the run did, the phases of its steps, and the passes of its pipeline.

ledger.py and straggler.py compute the rest from them. The file may be missing, truncated, or somebody else's.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

from bertbench.common.paths import folder_of
from bertbench.common.phases import BACKWARD, FORWARD, PHASES, STAGE_WAIT
from bertbench.runs.json_files import json_lines
from bertbench.runs.trace_format import BUCKETS, PASSES, PIPELINE, RESUMED, RUN, RUN_TRACK, STEPS, TRACE_FILE, Event
from compliance.read.run import as_integer, number

_MOST_BARS = 4000
_MOST_RANKS = 1 << 16


@dataclass(frozen=True)
class Activity:
    """What the run does from a moment on, or RESUMED."""

    name: str
    time_s: float
    """Seconds since 1970."""
    details: Mapping[str, Any]
    """`waited_s`, `step`, `was`, `status` and `sign`, as in trace_format.py; the file may hold anything there."""


@dataclass(frozen=True)
class StepPhases:
    """The mean phases of some steps."""

    step: int
    """The last of the steps."""
    steps: int
    ms: dict[str, dict[int, float]] = field(default_factory=lambda: {phase: {} for phase in PHASES})
    """For each phase, the milliseconds of each rank; ranks whose phase took no time are left out."""

    @property
    def ranks(self) -> list[int]:
        """Return the ranks that took any time."""
        return sorted({rank for ms_by_rank in self.ms.values() for rank in ms_by_rank})

    def bubble(self, stages: Mapping[int, int]) -> float | None:
        """Return the share of a pipeline's time in which its ranks wait for other stages, given each rank's stage.

        None without a pipeline, and if no pass was timed. A pipeline's time is that of its first stage
        (docs/parallelism.md).
        """
        passes_ms = {rank: self.ms[FORWARD].get(rank, 0.0) + self.ms[BACKWARD].get(rank, 0.0) for rank in self.ranks}
        first_stage = [rank for rank in passes_ms if stages.get(rank) == 0]
        pipeline_ms = [passes_ms[rank] + self.ms[STAGE_WAIT].get(rank, 0.0) for rank in first_stage]
        if not any(pipeline_ms):
            return None
        return 1 - mean(passes_ms.values()) / mean(pipeline_ms)


@dataclass(frozen=True)
class PassBar:
    """A pass of a microbatch through a stage on a rank."""

    rank: int
    kind: str
    """`forward` or `backward`."""
    step: int
    stage: int
    microbatch: int
    began_ms: float
    ended_ms: float


@dataclass(frozen=True)
class RunTrace:
    """What a trace holds; all of it is empty if the run has none."""

    activities: list[Activity]
    phases: list[StepPhases]
    stages: dict[int, int]
    """The stage of each rank of a pipeline."""
    passes: list[PassBar]
    """The passes of the recorded steps of a pipeline."""

    def bubble(self) -> float | None:
        """Return the mean bubble of all steps; None without a pipeline."""
        total = 0.0
        steps = 0
        for phases in self.phases:
            bubble = phases.bubble(self.stages)
            if bubble is not None:
                total += phases.steps * bubble
                steps += phases.steps
        return total / steps if steps else None

    def first_step(self) -> list[PassBar]:
        """Return the passes of the first recorded step of a pipeline."""
        return [bar for bar in self.passes if bar.step == self.passes[0].step][:_MOST_BARS]


def read_trace(log: Path) -> RunTrace:
    """Return what the trace beside a log holds."""
    return read_trace_file(folder_of(log) / TRACE_FILE)


def read_trace_file(path: Path) -> RunTrace:
    """Return what a trace holds; nothing if there is none."""
    activities: list[Activity] = []
    phases: list[StepPhases] = []
    stages = {}
    passes: list[PassBar] = []
    for event in json_lines(path):
        process = event.get("pid")
        details = event.get("args")
        details = details if isinstance(details, dict) else {}
        if process == RUN:
            activities += _activity(event, details)
        elif process == STEPS:
            rank = as_integer(event.get("tid"))
            stage = as_integer(details.get("stage"))
            if rank is not None and stage is not None:
                stages[rank] = stage
            _add_phase(phases, event, details)
        elif process == PIPELINE:
            passes += _pass_bar(event, details)
    return RunTrace(activities, phases, stages, passes)


def _activity(event: Event, details: Mapping[str, Any]) -> Iterator[Activity]:
    time_us = number(event.get("ts"))
    name = event.get("name")
    begins = event.get("ph") == "B" and event.get("tid") == RUN_TRACK and name in BUCKETS
    resumes = name == RESUMED and isinstance(details.get("step"), int)
    if time_us is not None and (begins or resumes):
        yield Activity(str(name), time_us / 1e6, details)


def _add_phase(phases: list[StepPhases], event: Event, details: Mapping[str, Any]) -> None:
    """Add an event to the phases of its steps, which are the last ones; a resumed run repeats earlier steps."""
    phase = event.get("name")
    rank = as_integer(event.get("tid"))
    length_us = number(event.get("dur"))
    step = as_integer(details.get("step"))
    steps = as_integer(details.get("steps"))
    if phase not in PHASES or rank is None or not 0 <= rank < _MOST_RANKS or length_us is None:
        return
    if step is None or steps is None or steps < 1:
        return
    last = phases[-1] if phases else None
    if last is None or (last.step, last.steps) != (step, steps) or rank in last.ms[phase]:
        last = StepPhases(step, steps)
        phases.append(last)
    last.ms[phase][rank] = length_us / 1e3


def _pass_bar(event: Event, details: Mapping[str, Any]) -> Iterator[PassBar]:
    """Yield the pass of an event that can be drawn."""
    track = as_integer(event.get("tid"))
    places = [as_integer(details.get(name)) for name in ("step", "stage", "microbatch")]
    began_us = number(event.get("ts"))
    length_us = number(event.get("dur"))
    if details.get("kind") not in PASSES or track is None or not 0 <= track < _MOST_RANKS:
        return
    if began_us is None or length_us is None or None in places:
        return
    step, stage, microbatch = (place or 0 for place in places)
    yield PassBar(track // 2, details["kind"], step, stage, microbatch, began_us / 1e3, (began_us + length_us) / 1e3)
