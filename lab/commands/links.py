"""`bertbench lab links`: compare methods of training over a slow link, by time to the target."""

import argparse
import sys
from collections.abc import Callable

from bertbench.commands import SYSTEM_HELP, add_system_arguments, aligned, check_at_least_one, emit, seed
from lab.bench import delay_line
from lab.bench.links import WAYS, Contest, measure
from lab.bench.links_page import table_rows, verdicts
from lab.bench.network import obstacle
from lab.commands.record import add_record, emit_measured


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add links, methods and the system."""
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
    parser.add_argument(
        "--ways", type=_ways, default=tuple(WAYS), metavar="W,...", help=f"of {', '.join(WAYS)} (default all)"
    )
    parser.add_argument("--steps", type=int, metavar="N", help="time N steps of each instead of training to the target")
    parser.add_argument("--seed", type=seed, default=1, metavar="N", help="seed of every run (default 1)")
    add_record(parser)


def run(arguments: argparse.Namespace) -> int:
    """Measure and print a table; without virtual hosts, print the reason and stop."""
    check_at_least_one(arguments, "steps")
    reason = obstacle() or (delay_line.obstacle() if any(arguments.latency_ms) else None)
    if reason:
        print(f"skipped: {reason}", file=sys.stderr)
        emit(arguments.json, [])
        return 0
    contest = Contest(arguments.system, tuple(arguments.overrides), arguments.ways, arguments.seed, arguments.steps)
    rows = measure(contest, arguments.mbit, arguments.latency_ms)
    head, *table = table_rows(rows)
    emit_measured(arguments, rows, "\n".join([aligned(head, table, right=True), *verdicts(rows)]))
    return 0


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


def _ways(text: str) -> tuple[str, ...]:
    ways = tuple(text.split(","))
    if unknown := [way for way in ways if way not in WAYS]:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r}: expected some of {', '.join(WAYS)}")
    return ways
