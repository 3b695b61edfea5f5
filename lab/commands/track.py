"""`bertbench lab track`: measure what trackers beside a run cost its steps."""

import argparse

from bertbench.commands import SYSTEM_HELP, add_system_arguments, seed, words_of
from bertbench.common.progress import Progress
from bertbench.machine.processor import processor
from bertbench.tracking.options import TRACKERS
from bertbench.tracking.trackers import check_installed
from bertbench.training.inputs import open_data
from lab.bench.track import WINDOW_S, Cost, contest, measure
from lab.commands.record import add_record, emit_measured


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the trackers, the system and the length of the measurement."""
    parser.add_argument(
        "--track", default=",".join(TRACKERS), metavar="T,...", help=f"trackers to run (default {','.join(TRACKERS)})"
    )
    parser.add_argument(
        "--minutes", type=float, default=10.0, metavar="M", help="length of the measurement (default 10)"
    )
    parser.add_argument("--system", default="cpu_demo", metavar="S", help=f"{SYSTEM_HELP} of CPU ranks (cpu_demo)")
    parser.add_argument("--seed", type=seed, default=1, help="seed of the run and of the windows' order (default 1)")
    add_system_arguments(parser)
    add_record(parser)


def run(arguments: argparse.Namespace) -> int:
    """Measure and print three lines."""
    trackers = words_of(arguments.track, "--track", TRACKERS)
    check_installed(trackers)
    system, *_ = contest(arguments.system, arguments.overrides, arguments.minutes)
    open_data(system)  # report bad data before ranks start
    with Progress() as progress:
        cost = measure(arguments.system, arguments.overrides, trackers, arguments.minutes, arguments.seed, progress)
    emit_measured(arguments, {"machine": processor(), "cost": cost}, _text(cost))
    return 0


def _text(cost: Cost) -> str:
    filled = (
        "a rank on each" if cost.ranks >= cost.processors else f"{cost.processors - cost.ranks} of them without one"
    )
    return (
        f"{cost.system} with {', '.join(cost.trackers)}; {cost.ranks} ranks, {cost.processors} processors of "
        f"{processor()}, {filled}\n"
        f"{cost.pairs} pairs of windows of {WINDOW_S:g} s: {cost.step_ms_on:.2f} ms a step with trackers, "
        f"{cost.step_ms_off:.2f} while they are stopped\n"
        f"{100 * cost.slower:+.2f} % (95 % interval {100 * cost.low:+.2f} to {100 * cost.high:+.2f} %); trackers use "
        f"{100 * cost.processor_share:.2f} % of a processor"
    )
