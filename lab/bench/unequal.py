"""`lab unequal`: time real steps of two ranks, one of which shares its core with another program.

A step waits for its slowest rank. With equal work, a rank at half speed doubles every step; with work in proportion to
the measured speeds (`launch.rank_speeds=auto`), both ranks finish together. Both assignments do whole runs on the same
global batches, interleaved.
"""

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

from bertbench.common.errors import RunError
from bertbench.common.progress import Progress
from bertbench.machine.processor import processor
from bertbench.model.shape import SHAPES
from lab.bench.gpu.product import write_system
from lab.bench.harness import BenchResult, command, in_turns, paired_ratio
from lab.bench.whole_run import ALIKE, steps_here, steps_only

EQUAL, MEASURED = "equal work", "by measured speed"
SETTINGS = {EQUAL: (), MEASURED: ("launch.rank_speeds=auto",)}
_TURNS = 3
_WARM_UP = 1  # steps
_TWO_BOUND_RANKS = (
    *ALIKE, "launch.device=cpu", "launch.ranks_per_node=2", "launch.bind_cores=true",
    "hardware.accelerators_per_node=0", "data.equal_counts=false", "loss.normalize=global",
)  # fmt: skip
_BUSY = "import os, sys\nos.sched_setaffinity(0, {int(sys.argv[1])})\nprint(flush=True)\nwhile True:\n    pass\n"
"""A program that keeps one core busy; it prints a line once it is bound."""


def measure(arguments: argparse.Namespace, progress: Progress) -> BenchResult:
    """Take `steps` steps with each assignment, `batch` samples a rank on average, in each of three turns.

    Raises RunError on a machine where this process may use fewer than two cores.
    """
    batch, steps = arguments.batch, arguments.steps
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise RunError(f"found {len(cores)} core that this process may use, expected two; use a machine with two")
    with TemporaryDirectory() as folder:
        system = write_system(Path(folder), SHAPES["small"], batch, _WARM_UP + steps)
        settings = (*_TWO_BOUND_RANKS, *steps_only(_WARM_UP + steps, 2 * batch))
        runs_of = {name: partial(_step_ms, system, settings, arguments.seed, name) for name in SETTINGS}
        with busy_core(cores[-1]):
            runs = in_turns(runs_of, _TURNS, progress=progress)
    step_ms = {}
    for name in SETTINGS:
        medians_of_runs = [statistics.median(run) for run in runs[name]]
        step_ms[name] = statistics.median(medians_of_runs)
    equal = [*chain.from_iterable(runs[EQUAL])]
    ratio = paired_ratio(equal, [*chain.from_iterable(runs[MEASURED])])
    content = {"step_ms": step_ms, "ratio": ratio.ratio, "ratio_low": ratio.low, "ratio_high": ratio.high}
    shown = ", ".join(f"{name} {milliseconds:,.0f} ms" for name, milliseconds in step_ms.items())
    return BenchResult(
        content,
        [
            f"small, 2 ranks on {processor()}, the second shares its core with another program: {shown} a step",
            f"{EQUAL} over {MEASURED}, {len(equal)} pairs of steps: {ratio}",
        ],
    )


@contextmanager
def busy_core(core: int) -> Iterator[None]:
    """Keep `core` busy with another program until the end of the block."""
    words = [sys.executable, "-c", _BUSY, str(core)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as program:
        try:
            assert program.stdout is not None
            program.stdout.readline()
            yield
        finally:
            program.kill()


def _step_ms(system: Path, settings: Sequence[str], seed: int, assignment: str, number: int) -> list[float]:
    """Return the milliseconds of each step of one run after the first, which warms up."""
    log = system.with_name(f"{assignment.replace(' ', '_')}_{number}.txt")
    steps = steps_here(str(system), (*settings, *SETTINGS[assignment]), seed, log)
    return [step["step_ms"] for step in steps[_WARM_UP:]]


add_arguments, run = command(
    measure, ("--batch", 8, "samples a rank and step"), ("--steps", 15, "steps of each run"),
    seeds="weights and order",
)  # fmt: skip
