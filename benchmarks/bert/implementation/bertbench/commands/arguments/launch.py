"""Define the arguments of `bertbench launch`."""

import argparse

from bertbench.commands import add_flag, add_number, add_path
from bertbench.commands.arguments import train


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `train`, the number of runs and the place."""
    train.add_arguments(parser)
    add_number(parser, "--runs", "N", "number of runs (default 1; a result needs 10)", default=1)
    parser.add_argument(
        "--on",
        choices=["local", "slurm", "docker", "kubernetes"],
        default="local",
        help="where the ranks run (default: this machine)",
    )
    add_flag(parser, "--dry-run", "print the exact commands instead of running them")
    parser.add_argument(
        "--kind", choices=["trainjob", "jobset"], default="trainjob", help="Kubeflow object to create on kubernetes"
    )
    add_path(parser, "--close", "LOG", "end the log of a run whose ranks are gone (run.sub)")
    parser.add_argument("--reason", default="the ranks are gone", help="cause that --close writes")
