"""`bertbench launch SYSTEM`: runs of a system, one after the other, each with a seed of its own."""

import argparse
import json
import os
import sys

from bertbench.commands import train
from bertbench.config import load_system
from bertbench.errors import ConfigError
from bertbench.launch import TARGET_MISSED
from bertbench.rendezvous import launched_ranks


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Everything that `train` takes, and how often and where."""
    train.add_arguments(parser, default_system="cpu_demo")
    parser.add_argument(
        "--runs", type=int, default=1, metavar="N", help="number of runs (default 1; a result needs 10)"
    )
    parser.add_argument("--on", choices=["local"], default="local", help="where the ranks run")


def run(arguments: argparse.Namespace) -> int:
    """The highest exit code of the runs; a run that misses its target doesn't stop the next."""
    if arguments.runs < 1:
        raise ConfigError(f"--runs {arguments.runs}: expected at least 1")
    if arguments.runs > 1 and (arguments.seed is not None or arguments.result is not None):
        raise ConfigError("--runs with --seed or --result would make the same run several times; leave one of them out")
    if launched_ranks(os.environ) is not None:  # Slurm started one of these per rank
        return train.run(arguments)
    system = load_system(arguments.system, arguments.overrides)
    outcomes, codes = [], []
    for number in range(arguments.runs):
        if arguments.runs > 1:
            print(f"run {number + 1} of {arguments.runs}", file=sys.stderr)
        files, code = train.train_once(system, arguments)
        outcomes.append(train.outcome(files))
        codes.append(code)
        if code not in (0, TARGET_MISSED):
            break
    if arguments.json:
        print(json.dumps(outcomes, indent=2))
    return max(codes)
