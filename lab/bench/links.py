"""`lab links`: compare methods of training over a slow link, by time to the target or by samples per second.

Two ranks on two virtual hosts do whole runs of a system, one for each method and link, with evaluations, log and
metrics as in any run. Times are from run_start to run_stop.
"""

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bertbench.cli.arguments import SYSTEM_HELP, add_system_arguments
from bertbench.common.children import temporary_folder
from bertbench.common.errors import ConfigError
from bertbench.common.progress import Progress
from bertbench.config import System, load_system
from bertbench.config.given import check_given
from bertbench.distributed.world import World
from bertbench.launch.run_options import TRAIN
from bertbench.loading.inputs import open_data
from bertbench.training.technique import Technique
from lab.bench import delay_line
from lab.bench.harness import BenchResult, command, option, table_lines
from lab.bench.network import limit_bandwidth, network_obstacle, on_two_hosts
from lab.bench.whole_run import ALIKE, read_timed_run, steps_only, train_quietly
from lab.techniques.read import read_technique

RANKS = 2
EVERY_STEP = "every_step"
METHODS: tuple[tuple[str, ...], ...] = (
    (EVERY_STEP,),
    ("int8",),
    ("topk",),
    ("delayed",),
    ("local_sgd",),
    # with 0.7 and 0.9, as in long runs, it misses the study's target, which it should reach in about ten outer steps
    ("diloco", "outer_learning_rate=0.8", "outer_momentum=0.2"),
)
"""The compared techniques, each its name and options."""
_COLUMNS = {
    "Mbit/s": "{0[0].mbit:g}", "latency ms": "{0[0].latency_ms:g}", "method": "{0[0].way}",
    "samples/s": "{0[0].samples_per_s:,.0f}", "samples to target": "{0[1]:,}", "seconds to target": "{0[2]:,.1f}",
    "speed / every_step": "{0[3]:.2f}",
}  # fmt: skip


@dataclass(frozen=True)
class LinkRow:
    """One run over one link."""

    way: str
    mbit: float
    latency_ms: float
    """One-way latency."""
    samples_per_s: float
    """The rate over the whole run; with a fixed number of steps, without the evaluation."""
    samples: int
    reached: bool
    """Whether the run reached its target; always false with a fixed number of steps."""
    seconds: float
    """The time from run_start to run_stop; with a fixed number of steps, without the final evaluation."""


def measure(arguments: argparse.Namespace, progress: Progress) -> BenchResult | None:
    """Run every method over every link; this needs root."""
    mbits = _numbers("--mbit", arguments.mbit, 0)
    latencies_ms = _numbers("--latency-ms", arguments.latency_ms, -1)
    if reason := network_obstacle() or (delay_line.missing_device() if any(latencies_ms) else None):
        progress.message(f"skipped: {reason}")
        return None
    techniques = [read_technique(words) for words in METHODS]
    system = _system(arguments)
    for technique in techniques:
        technique.check(system)
    rows: list[LinkRow] = []
    to_target = arguments.steps is None
    for latency_ms in latencies_ms:
        work = system, techniques, arguments.seed, to_target, mbits, latency_ms
        rows += on_two_hosts(_on_rank, *work, latency_ms=latency_ms)
    return BenchResult(rows, links_table(rows))


def _system(arguments: argparse.Namespace) -> System:
    """Return the system of all methods. Raises ConfigError or DataError if it can't train on two ranks."""
    settings = (*ALIKE, *arguments.overrides)
    system = load_system(arguments.system, settings)
    if arguments.steps is not None:
        system = load_system(arguments.system, (*settings, *steps_only(arguments.steps, system.global_batch_size)))
    if system.world_size != RANKS or system.launch.device != "cpu":
        raise ConfigError(
            f"{system.name}: found {system.world_size} ranks on {system.launch.device}, expected {RANKS} on cpu (one "
            "for each virtual host); choose another --system"
        )
    check_given(system, TRAIN)
    open_data(system)
    return system


def _on_rank(
    world: World,
    system: System,
    techniques: Sequence[Technique],
    seed: int,
    to_target: bool,
    mbits: Sequence[float],
    latency_ms: float,
) -> list[LinkRow]:
    rows = []
    progress = Progress(enabled=world.leads)
    folder = Path(temporary_folder())
    for mbit in mbits:
        limit_bandwidth(mbit)
        for technique in techniques:
            way = technique.name
            log = folder / f"{way}_{mbit:g}.txt"
            train_quietly(world, system, seed, log, technique)
            if not world.leads:
                continue
            run = read_timed_run(log, to_target)
            rate = round(run.samples / run.seconds, 1)
            rows.append(LinkRow(way, mbit, latency_ms, rate, run.samples, run.reached, round(run.seconds, 3)))
            progress.message(f"{mbit:g} Mbit/s, {latency_ms:g} ms: {way}: {run.samples:,} samples, {run.seconds:.1f} s")
    return rows


def links_table(rows: Sequence[LinkRow]) -> list[str]:
    """Return a table with a line for each run; the last column is the speed relative to every_step on the same link.

    It is empty if only one of the two runs reached the target. Without targets, all runs have the same samples.
    """
    plain = {(row.mbit, row.latency_ms): row for row in rows if row.way == EVERY_STEP}
    lines = []
    for row in rows:
        base = plain[row.mbit, row.latency_ms]
        samples = row.samples if row.reached else None
        seconds = row.seconds if row.reached else None
        times = base.seconds / row.seconds if base.reached == row.reached else None
        lines.append((row, samples, seconds, times))
    return table_lines(lines, _COLUMNS)


def _numbers(option: str, text: str, above: float) -> list[float]:
    """Return the list of numbers given to an option. Raises ConfigError unless all are above `above`."""
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        numbers = [above]
    if not all(above < number < math.inf for number in numbers):
        raise ConfigError(f"{option} {text}: expected numbers above {above:g}, separated by commas, such as 10,100")
    return numbers


add_arguments, run = command(
    measure, ("--steps", None, "time N steps of each method instead of training to the target"),
    more=[
        partial(add_system_arguments, reads=TRAIN),
        option("--system", default="cpu_study", metavar="S", help=f"{SYSTEM_HELP} of two CPU ranks (cpu_study)"),
        option(
            "--mbit", default="10,100,1000", metavar="B,...",
            help="bandwidths in megabits per second (default 10,100,1000)",
        ),
        option("--latency-ms", default="0", metavar="L,...", help="one-way latencies in milliseconds (default 0)"),
    ],
    seeds="every run",
)  # fmt: skip
