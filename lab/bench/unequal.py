"""`lab unequal`: time real steps of two ranks, one of which shares its core with another program.

A step waits for its slowest rank. With equal work, a rank at half speed doubles the time of every step. With work in
proportion to the measured speeds (`launch.rank_speeds=auto`), both ranks finish together. Each assignment does whole
runs on the same global batches; the runs are interleaved.
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

from bertbench.common.children import dying_with_us
from bertbench.common.errors import RunError
from bertbench.common.progress import Progress
from bertbench.machine.processor import processor
from bertbench.model.shape import SHAPES
from lab.bench.gpu.product import write_system
from lab.bench.harness import BenchResult, alternate, command, paired_ratio
from lab.bench.whole_run import ALIKE, steps_here, steps_only

EQUAL, MEASURED = "equal work", "by measured speed"
SETTINGS = {EQUAL: (), MEASURED: ("launch.rank_speeds=auto",)}
_ROUNDS = 3
_WARM_UP = 1  # steps
_TWO_BOUND_RANKS = (
    *ALIKE, "launch.device=cpu", "launch.ranks_per_node=2", "launch.bind_cores=true",
    "hardware.accelerators_per_node=0", "data.equal_counts=false", "loss.normalize=global",
)  # fmt: skip
_BUSY = "import os, sys\nos.sched_setaffinity(0, {int(sys.argv[1])})\nprint(flush=True)\nwhile True:\n    pass\n"
"""A program that keeps one core busy; it prints a line when it has been bound to the core."""


def measure(arguments: argparse.Namespace, progress: Progress) -> BenchResult:
    """Take `steps` steps with each assignment, with a mean of `batch` samples per rank, in each of three rounds.

    Raises RunError if this process may use fewer than two cores.
    """
    batch, steps = arguments.batch, arguments.steps
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise RunError(f"this process may use {len(cores)} core, but needs two; use a machine with two cores")
    with TemporaryDirectory() as folder:
        system = write_system(Path(folder), SHAPES["small"], batch, _WARM_UP + steps)
        settings = (*_TWO_BOUND_RANKS, *steps_only(_WARM_UP + steps, 2 * batch))
        runs_of = {name: partial(_step_ms, system, settings, arguments.seed, name) for name in SETTINGS}
        with busy_core(cores[-1]):
            runs = alternate(runs_of, _ROUNDS, progress=progress)
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
            f"small, 2 ranks on {processor()}, the second shares its core with another program: {shown} per step",
            f"time with {EQUAL} / time {MEASURED}, {len(equal)} pairs of steps: {ratio}",
        ],
    )


@contextmanager
def busy_core(core: int) -> Iterator[None]:
    """Keep `core` busy with another program within the context."""
    words = [sys.executable, "-c", _BUSY, str(core)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, preexec_fn=dying_with_us()) as program:
        try:
            assert program.stdout is not None
            program.stdout.readline()
            yield
        finally:
            program.kill()


def _step_ms(system: Path, settings: Sequence[str], seed: int, assignment: str, number: int) -> list[float]:
    """Return the milliseconds of each step of one run, without the first, which warms up."""
    log = system.with_name(f"{assignment.replace(' ', '_')}_{number}.txt")
    steps = steps_here(str(system), (*settings, *SETTINGS[assignment]), seed, log)
    return [step["step_ms"] for step in steps[_WARM_UP:]]


add_arguments, run = command(
    measure, ("--batch", 8, "samples per rank and step"), ("--steps", 15, "steps of each run"),
    seeds="weights and order",
)  # fmt: skip
