"""Define the arguments of `bertbench launch`."""

import argparse
from pathlib import Path

from bertbench.commands.arguments import train


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `train`, the number of runs and the place."""
    train.add_arguments(parser)
    parser.add_argument(
        "--runs", type=int, default=1, metavar="N", help="number of runs (default 1; a result needs 10)"
    )
    parser.add_argument(
        "--on",
        choices=["local", "slurm", "docker", "kubernetes"],
        default="local",
        help="where the ranks run (default: this machine)",
    )
    parser.add_argument("--dry-run", action="store_true", help="print the exact commands instead of running them")
    parser.add_argument(
        "--kind", choices=["trainjob", "jobset"], default="trainjob", help="Kubeflow object to create on kubernetes"
    )
    parser.add_argument("--close", type=Path, metavar="LOG", help="end the log of a run whose ranks are gone (run.sub)")
    parser.add_argument("--reason", default="the ranks are gone", help="cause that --close writes")
