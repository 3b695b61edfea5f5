"""`lab links`: compare methods of training over a slow link, by time to the target or by samples a second.

Two ranks on two virtual hosts do whole runs of a system, one for each method and link: evaluations, log and metrics as
in any run. Times run from run_start to run_stop.
"""

import argparse
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from bertbench.commands import SYSTEM_HELP, add_system_arguments, words_of
from bertbench.common.errors import ConfigError
from bertbench.common.progress import Progress
from bertbench.config import System, load_system
from bertbench.distributed.world import World
from bertbench.loading.inputs import open_data
from lab.bench import delay_line
from lab.bench.harness import Found, command, table
from lab.bench.network import limit_bandwidth, obstacle, on_two_hosts
from lab.bench.whole_run import read_run, steps_only, train_quietly

RANKS = 2
EVERY_STEP = "every_step"
WAYS: dict[str, tuple[str, ...]] = {
    EVERY_STEP: (),
    "int8": ("communication.compression=int8",),
    "topk": ("communication.compression=topk",),
    "delayed": ("sync.method=delayed",),
    "local_sgd": ("sync.method=local_sgd",),
    # with the 0.7 and 0.9 of long runs it misses the study's target, which is about ten outer steps away
    "diloco": ("sync.method=diloco", "sync.outer_learning_rate=0.8", "sync.outer_momentum=0.2"),
}
"""By name: settings that override the system's."""
# A run that measured its number format could choose another one and need other samples to the target. Local updates are
# evaluated by the ranks' mean, so no method evaluates an average over steps.
_ALIKE = (
    "precision.compute=fp32",
    "compute.products=torch",
    "optimizer.ema_decay=0",
    "checkpoint.final_weights=false",
)
_COLUMNS = {
    "Mbit/s": "{0[0].mbit:g}", "latency ms": "{0[0].latency_ms:g}", "way": "{0[0].way}",
    "samples/s": "{0[0].samples_per_s:,.0f}", "samples to target": "{0[1]:,}", "seconds to target": "{0[2]:,.1f}",
    "times every_step": "{0[3]:.2f}",
}  # fmt: skip


@dataclass(frozen=True)
class LinkRow:
    """One run over one link."""

    way: str
    mbit: float
    latency_ms: float
    """One way."""
    samples_per_s: float
    """Rate over the whole run; with a fixed number of steps, without its evaluation."""
    samples: int
    reached: bool
    """Whether the run reached its target; never with a fixed number of steps."""
    seconds: float
    """From run_start to run_stop; with a fixed number of steps, without the final evaluation."""


def measure(arguments: argparse.Namespace, progress: Progress) -> Found | None:
    """Run every method over every link; needs root."""
    ways = words_of(arguments.ways, "--ways", tuple(WAYS))
    if reason := obstacle() or (delay_line.obstacle() if any(arguments.latency_ms) else None):
        progress.message(f"skipped: {reason}")
        return None
    systems = {way: _system(arguments, way) for way in ways}
    rows: list[LinkRow] = []
    for latency_ms in arguments.latency_ms:
        given = systems, arguments.seed, arguments.steps is None, arguments.mbit, latency_ms
        rows += on_two_hosts(_on_rank, *given, latency_ms=latency_ms)
    return Found(rows, [*table_of(rows), *verdicts(rows)])


def _system(arguments: argparse.Namespace, way: str) -> System:
    """Return the system of a method. Raises ConfigError or DataError if it can't train on two ranks."""
    settings = (*_ALIKE, *WAYS[way], *arguments.overrides)
    system = load_system(arguments.system, settings)
    if arguments.steps is not None:
        system = load_system(arguments.system, (*settings, *steps_only(arguments.steps, system.global_batch_size)))
    if system.world_size != RANKS or system.launch.device != "cpu":
        raise ConfigError(
            f"{system.name}: found {system.world_size} ranks on {system.launch.device}, expected {RANKS} on cpu, one "
            "for each virtual host; choose another --system"
        )
    open_data(system)
    return system


def _on_rank(
    world: World, systems: Mapping[str, System], seed: int, to_target: bool, mbits: Sequence[float], latency_ms: float
) -> list[LinkRow]:
    rows, progress = [], Progress(enabled=world.leads)
    with tempfile.TemporaryDirectory() as folder:
        for mbit in mbits:
            limit_bandwidth(mbit)
            for way, system in systems.items():
                log = Path(folder) / f"{way}_{mbit:g}.txt"
                train_quietly(world, system, seed, log)
                if not world.leads:
                    continue
                run = read_run(log, to_target)
                rate = round(run.samples / run.seconds, 1)
                rows.append(LinkRow(way, mbit, latency_ms, rate, run.samples, run.reached, round(run.seconds, 3)))
                progress.message(
                    f"{mbit:g} Mbit/s, {latency_ms:g} ms: {way}: {run.samples:,} samples in {run.seconds:.1f} s, "
                    f"{rate:,.0f} a second, accuracy {run.course[-1][1]:.3f}"
                )
    return rows


def table_of(rows: Sequence[LinkRow]) -> list[str]:
    """Return a head and a line a run; the last column is the speed relative to every_step on the same link."""
    lines = []
    for row, base in _compared(rows):
        to_target = (row.samples, row.seconds) if row.reached else (None, None)
        lines.append((row, *to_target, base and cost(base) / cost(row)))
    return table(lines, _COLUMNS)


def verdicts(rows: Sequence[LinkRow]) -> list[str]:
    """Say at which bandwidths methods take as long as every_step, and which are faster or slower at all of several.

    Between two measured bandwidths, seconds are interpolated linearly in 1 / bandwidth.
    """
    gaps: dict[tuple[str, float], list[tuple[float, float]]] = {}
    for row, base in _compared(sorted(rows, key=lambda row: row.mbit)):
        if base and base is not row:
            gaps.setdefault((row.way, row.latency_ms), []).append((1 / row.mbit, cost(row) - cost(base)))
    crossings, alike = [], dict[tuple[str, str], list[str]]()
    for (way, latency_ms), points in gaps.items():
        met = [
            1 / (x + (next_x - x) * gap / (gap - next_gap))
            for (x, gap), (next_x, next_gap) in pairwise(points)
            if (gap < 0) != (next_gap < 0)
        ]
        where = f"latency {latency_ms:g} ms"
        crossings += [f"{way} takes as long as {EVERY_STEP} at {mbit:,.0f} Mbit/s, {where}" for mbit in met]
        if len(points) > 1 and not met:
            alike.setdefault(("faster" if points[0][1] < 0 else "slower", where), []).append(way)
    return crossings + [
        f"{which} than {EVERY_STEP} at all bandwidths measured, {where}: {', '.join(ways)}"
        for (which, where), ways in alike.items()
    ]


def _compared(rows: Sequence[LinkRow]) -> Iterator[tuple[LinkRow, LinkRow | None]]:
    """Yield each run and every_step's over the same link; None if only one of them reached the target."""
    plain = {(row.mbit, row.latency_ms): row for row in rows if row.way == EVERY_STEP}
    for row in rows:
        base = plain.get((row.mbit, row.latency_ms))
        yield row, base if base and base.reached == row.reached else None


def cost(row: LinkRow) -> float:
    """Return seconds to the target, or seconds a sample in runs without a target."""
    return row.seconds if row.reached else 1 / row.samples_per_s


def _numbers(above: float) -> Callable[[str], list[float]]:
    """Return a parser for comma-separated numbers above `above`, for argparse."""

    def read(text: str) -> list[float]:
        try:
            numbers = [float(part) for part in text.split(",")]
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text!r}: expected numbers separated by commas") from error
        if wrong := [number for number in numbers if not above < number < float("inf")]:
            raise argparse.ArgumentTypeError(f"{wrong[0]:g}: expected a number above {above:g}")
        return numbers

    return read


def _options(parser: argparse.ArgumentParser) -> None:
    add_system_arguments(parser)
    parser.add_argument(
        "--system", default="cpu_study", metavar="S", help=f"{SYSTEM_HELP} of two CPU ranks (cpu_study)"
    )
    parser.add_argument(
        "--mbit", type=_numbers(above=0), default=[10.0, 100.0, 1000.0], metavar="B,...",
        help="bandwidths in megabits a second (default 10,100,1000)",
    )  # fmt: skip
    parser.add_argument(
        "--latency-ms", type=_numbers(above=-1), default=[0.0], metavar="L,...",
        help="one-way latency in milliseconds (default 0)",
    )  # fmt: skip
    ways = ",".join(WAYS)
    parser.add_argument("--ways", default=ways, metavar="W,...", help=f"of {ways} (default all)")


add_arguments, run = command(
    measure, ("--steps", None, "time N steps of each instead of training to the target"),
    more=_options, seeds="every run",
)  # fmt: skip
