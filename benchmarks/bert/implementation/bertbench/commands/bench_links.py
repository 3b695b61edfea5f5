"""`bertbench bench links`: ways to train over a slow link, by time to the target."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from bertbench.bench import delay_line
from bertbench.bench.links import WAYS, Contest, measure
from bertbench.bench.links_page import page_of, table_rows, verdicts
from bertbench.bench.network import obstacle
from bertbench.commands import SYSTEM_HELP, add_system_arguments, check_at_least_one, emit, seed, write_file
from bertbench.common.paths import runs_folder
from bertbench.distributed.affinity import available_cores
from bertbench.machine.processor import processor


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which links, which ways, what is trained, and where the page goes."""
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
        help="milliseconds that packets take one way (default 0)",
    )  # fmt: skip
    parser.add_argument(
        "--ways", type=_ways, default=tuple(WAYS), metavar="W,...", help=f"of {', '.join(WAYS)} (default all)"
    )
    parser.add_argument("--steps", type=int, metavar="N", help="time so many steps of each, not the way to the target")
    parser.add_argument("--seed", type=seed, default=1, metavar="N", help="seed of every run (default 1)")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="folder of its page, links.html (default: runs/bench_links)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Measure, write the page, print a table; where two virtual hosts can't be had, say so and measure nothing."""
    check_at_least_one(arguments, "steps")
    reason = obstacle() or (delay_line.obstacle() if any(arguments.latency_ms) else None)
    if reason:
        print(f"skipped: {reason}", file=sys.stderr)
        emit(arguments.json, [])
        return 0
    contest = Contest(arguments.system, tuple(arguments.overrides), arguments.ways, arguments.seed, arguments.steps)
    rows = measure(contest, arguments.mbit, arguments.latency_ms)
    folder = arguments.out or runs_folder() / "bench_links"
    folder.mkdir(parents=True, exist_ok=True)
    machine = f"{available_cores()} cores of {processor()}"
    write_file(folder / "links.html", page_of(rows, arguments.system, machine), "--out")
    table = table_rows(rows)
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = ["  ".join(map(str.rjust, row, widths)) for row in table]
    emit(arguments.json, rows, "\n".join([*lines, "", *verdicts(rows)]))
    return 0


def _numbers(above: float) -> Callable[[str], list[float]]:
    """Return what reads numbers greater than `above` between commas, for argparse."""

    def read(text: str) -> list[float]:
        try:
            numbers = [float(part) for part in text.split(",")]
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text!r}: expected numbers with commas between") from error
        if wrong := [number for number in numbers if not above < number < float("inf")]:
            raise argparse.ArgumentTypeError(f"{wrong[0]:g}: expected a number above {above:g}")
        return numbers

    return read


def _ways(text: str) -> tuple[str, ...]:
    ways = tuple(text.split(","))
    if unknown := [way for way in ways if way not in WAYS]:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r}: expected some of {', '.join(WAYS)}")
    return ways
