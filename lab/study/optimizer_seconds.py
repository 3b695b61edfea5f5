"""Time a step of every optimizer, width and batch, with and without an average of the weights."""

import statistics
import time
from functools import partial
from typing import Any, NamedTuple

from bertbench.common.progress import Progress
from bertbench.config.optimizer import OptimizerName
from lab.study.journal import Journal
from lab.study.optimizer_definition import Arm, Cell, OptimizerDefinition, Values
from lab.study.optimizer_run import Run

_ROUNDS = 5
_TURN = 10  # steps
_SEED = 1


class Step(NamedTuple):
    """What determines a step's time."""

    optimizer: OptimizerName
    ema: bool
    hidden: int
    batch: int


StepSeconds = dict[Step, float]


def step_seconds(definition: OptimizerDefinition, journal: Journal, progress: Progress) -> StepSeconds:
    """Return processor seconds of a step, its data included; skip what the journal already holds.

    Optimizers take turns of a few steps, so that changes of the machine's pace affect all equally; the median of the
    turns counts. Processor time of the one thread leaves out other programs.
    """
    found: StepSeconds = {}
    for hidden in definition.widths:
        for batch in definition.batches:
            progress.message(f"seconds of a step: width {hidden}, batch {batch.size}")
            measure = partial(_in_turns, definition, hidden, batch.size)
            record = journal.trial({"kind": "seconds", "arm": "all", "hidden": hidden, "batch": batch.size}, measure)
            found |= {Step(*step): seconds for *step, seconds in record["steps"]}
    return found


def _in_turns(definition: OptimizerDefinition, hidden: int, batch: int) -> dict[str, Any]:
    cell = Cell("random", hidden, batch)
    runs = {}
    for optimizer in definition.learning_rates:
        low = {name: bounds.low for name, bounds in definition.ranges(Arm(optimizer, cell)).items()}
        values = Values(**{**low, "decay_samples": float(batch * _TURN * (_ROUNDS + 1))})
        for ema in (False, True):
            runs[Step(optimizer, ema, hidden, batch)] = Run(definition, Arm(optimizer, cell), values, _SEED, None, ema)
    turns: dict[Step, list[float]] = {step: [] for step in runs}
    for _ in range(1 + _ROUNDS):
        for step, run in runs.items():
            begin = time.process_time()
            for _ in range(_TURN):
                run.step()
            turns[step].append((time.process_time() - begin) / _TURN)
    return {"steps": [[*step, statistics.median(own[1:])] for step, own in turns.items()]}  # the first turn warms up
