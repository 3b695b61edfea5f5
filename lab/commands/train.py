"""`bertbench lab train`: time training to the target beside Hugging Face's Trainer."""

import argparse
import importlib.util

from bertbench.commands import SYSTEM_HELP, add_system_arguments, check_at_least_one
from bertbench.common.progress import Progress
from bertbench.config import load_system
from bertbench.machine.processor import processor
from bertbench.training.inputs import open_data
from lab.bench.train import OURS, Contest, Result, measure
from lab.commands.record import add_record, emit_measured


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the system, the seeds and a limit of steps."""
    parser.add_argument(
        "system", nargs="?", default="cpu_demo", metavar="SYSTEM", help=f"{SYSTEM_HELP} (default cpu_demo)"
    )
    parser.add_argument("--seeds", type=int, default=1, metavar="N", help="runs of each program (default 1)")
    parser.add_argument("--steps", type=int, metavar="N", help="measure only throughput, over N steps")
    parser.add_argument(
        "--rival-set", action="append", default=[], dest="rival_overrides", metavar="NAME=VALUE",
        help="override a setting for the Trainer only, such as the learning rate of its AdamW; may be repeated",
    )  # fmt: skip
    add_system_arguments(parser)
    add_record(parser)


def run(arguments: argparse.Namespace) -> int:
    """Measure and print a table."""
    check_at_least_one(arguments, "seeds", "steps")
    contest = Contest(arguments.system, tuple(arguments.overrides), arguments.steps, tuple(arguments.rival_overrides))
    system = load_system(contest.name_or_path, contest.overrides)
    load_system(contest.name_or_path, (*contest.overrides, *contest.rival_overrides))
    open_data(system)  # report bad data before minutes of training
    rivals = all(importlib.util.find_spec(name) for name in ("transformers", "accelerate"))
    with Progress() as progress:
        if not rivals:
            progress.message(
                "transformers and accelerate are not installed: measuring bertbench only; `make setup` installs them"
            )
        results, courses = measure(contest, system, range(1, arguments.seeds + 1), rivals, progress)
    emit_measured(arguments, results, _table(results, system.name), {"courses": courses})
    return 0


def _table(results: list[Result], system: str) -> str:
    lines = [f"{system} on {processor()}; medians", f"{'':<52}{'seconds':>9}{'samples':>10}{'samples/s':>11}"]
    for result in results:
        seconds = "-" if result.seconds_to_target is None else f"{result.seconds_to_target:,.1f}"
        samples = "-" if result.samples_to_target is None else f"{result.samples_to_target:,.0f}"
        lines.append(f"{result.name:<52}{seconds:>9}{samples:>10}{result.samples_per_s:>11,.0f}")
    ours, *rivals = results
    assert ours.name == OURS
    if rivals:
        fastest = max(rivals, key=lambda result: result.samples_per_s)
        lines.append(f"{ours.samples_per_s / fastest.samples_per_s:.2f} times the samples/s of {fastest.name}")
    timed = [result for result in rivals if result.seconds_to_target is not None]
    if ours.seconds_to_target and timed:
        best = min(timed, key=lambda result: result.seconds_to_target or 0.0)
        ratio = (best.seconds_to_target or 0.0) / ours.seconds_to_target
        lines.append(f"{ratio:.2f} times as fast to the target as {best.name}, the fastest Trainer that reached it")
    return "\n".join(lines)
