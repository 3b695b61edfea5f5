"""`bertbench lab data`: measure how fast samples become batches, beside other readers."""

import argparse
import tempfile
from pathlib import Path

from bertbench.commands import seed
from bertbench.common.errors import ConfigError
from bertbench.common.progress import Progress
from bertbench.machine.processor import processor
from lab.bench.data import measure
from lab.commands.record import add_record, emit_measured

_FEWEST = 480


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the number of samples and the seed."""
    parser.add_argument("--samples", type=int, default=40_000, metavar="N", help="samples to make and read (default 40,000, 31 MB)")  # fmt: skip  # noqa: E501
    parser.add_argument("--seed", type=seed, default=1, help="seed of lengths, tokens and order (default 1)")
    add_record(parser)


def run(arguments: argparse.Namespace) -> int:
    """Measure and print a table."""
    if arguments.samples < _FEWEST:
        raise ConfigError(f"--samples {arguments.samples}: expected at least {_FEWEST}, ten batches")
    with tempfile.TemporaryDirectory() as folder, Progress() as progress:
        rates = measure(Path(folder), arguments.samples, arguments.seed, progress)
    lines = [f"samples/s into unpadded batches of 48, one core of {processor()}"]
    lines += [f"{rate.name:<10} {rate.order:<8} {rate.cache:<5} {rate.samples_per_s:>10,.0f}" for rate in rates]
    machine = {"processor": processor(), "cores_used": 1}
    emit_measured(arguments, {"machine": machine, "results": rates}, "\n".join(lines))
    return 0
