"""Define the arguments of `bertbench train`, which `launch` takes too."""

import argparse
from typing import get_args

from bertbench.commands import add_flag, add_path, add_system_arguments, seed
from bertbench.loading.options import OnBadSample
from bertbench.tracking.options import TRACKERS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the system, the seed and the output."""
    parser.add_argument(
        "--seed", type=seed, help="repeat the run that logged this seed (default: from the system's entropy)"
    )
    add_path(
        parser,
        "--result",
        "FILE",
        "log to write (default: the next runs/SYSTEM/bert/result_<n>.txt; LOGDIR moves runs/)",
    )
    parser.add_argument(
        "--resume", default="never", metavar="auto|never|PATH",
        help="resume an interrupted run from its last snapshot, or else from step 0: auto means the run of "
        "--result, or else the system's latest, and a new run if that one was not interrupted; PATH is a log, its "
        "folder or a snapshot (default: never)",
    )  # fmt: skip
    add_flag(parser, "--allow-config-change", "resume although the configuration has changed")
    parser.add_argument(
        "--on-bad-sample",
        choices=get_args(OnBadSample),
        default="fail",
        help="action on a damaged training sample: end the run (fail), or leave the sample out and count it "
        "(default: fail)",
    )
    parser.add_argument(
        "--track",
        action="append",
        default=[],
        choices=TRACKERS,
        help="record the run in a tracker from a separate process, in runs/tensorboard, runs/mlflow or runs/wandb; "
        "may be repeated",
    )
    parser.add_argument(
        "--metrics-port",
        metavar="[HOST:]PORT",
        help="serve the run's state as OpenMetrics, for Prometheus (default host: 127.0.0.1)",
    )
    group = parser.add_mutually_exclusive_group()
    for short, text in (
        ("smoke", "run a few steps of everything to check machine and file"),
        ("profile", "profile a few steady steps: a trace and a table of times"),
    ):
        help_text = f"{text}; not a result (runs/SYSTEM/{short}/)"
        group.add_argument(f"--{short}", action="store_const", dest="short", const=short, help=help_text)
    add_system_arguments(parser, positional=True)
