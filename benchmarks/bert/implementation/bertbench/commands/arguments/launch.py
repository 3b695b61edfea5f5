"""What `bertbench launch` takes."""

import argparse
from pathlib import Path

from bertbench.commands.arguments import train


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Everything that `train` takes, and how often and where."""
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
        "--kind", choices=["trainjob", "jobset"], default="trainjob", help="what to make on kubernetes (Kubeflow's)"
    )
    parser.add_argument("--close", type=Path, metavar="LOG", help="end the log of a run whose ranks are gone (run.sub)")
    parser.add_argument("--reason", default="the ranks are gone", help="what --close writes as the cause")
