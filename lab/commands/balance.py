"""`bertbench lab balance`: measure the speed-up of dealing by cost in real steps."""

import argparse
from dataclasses import asdict

from bertbench.commands import check_at_least_one, emit, seed
from bertbench.machine.processor import processor
from bertbench.model.sizes import SHAPES
from lab.bench.balance import measure


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the model, the batch and the number of steps."""
    parser.add_argument("--size", choices=SHAPES, default="small", help="size of the model (default small)")
    parser.add_argument("--batch", type=int, default=8, metavar="N", help="samples a rank and step (default 8)")
    parser.add_argument("--steps", type=int, default=15, metavar="N", help="steps with each method (default 15)")
    parser.add_argument("--seed", type=seed, default=1, help="seed of lengths, tokens and order (default 1)")


def run(arguments: argparse.Namespace) -> int:
    """Measure and print both ratios."""
    check_at_least_one(arguments, "batch", "steps")
    measured = measure(arguments.size, arguments.batch, arguments.steps, arguments.seed)
    times = ", ".join(f"{method} {taken:,.0f} ms" for method, taken in measured.step_ms.items())
    emit(
        arguments.json,
        {"machine": processor(), "size": arguments.size, **asdict(measured)},
        f"{arguments.size}, {measured.ranks} ranks x {measured.batch} samples on {processor()}: {times} a step\n"
        f"none takes {measured.ratio:.3f} times planned's time (median of {arguments.steps} pairs); "
        f"the cost model predicts {measured.simulated_ratio:.3f}",
    )
    return 0
