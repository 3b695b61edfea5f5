"""Define arguments of commands whose code imports torch, so that a mistyped option fails before torch loads.

A function adds the arguments of the command of its name.
"""

import argparse
from typing import get_args

from bertbench.commands import (
    SYSTEM_HELP,
    WEIGHTS_HELP,
    add_flag,
    add_number,
    add_path,
    add_system,
    add_system_arguments,
    seed,
)
from bertbench.config.load import gpu_card, gpu_models
from bertbench.config.sections import OnBadSample
from bertbench.launch.variables import SYSTEM_VARIABLES
from bertbench.report.trackers import TRACKERS

LEAST_GBIT = {"cuda": 100.0, "cpu": 0.0}
"""NCCL exceeds it over one of today's network cards, but not over a fallback socket or a bad cable."""
EXPECTATION = (
    "MLPerf's phase-1 checkpoint, unchanged, must score about 0.34085 on MLPerf's 10,000 evaluation samples: "
    "another number means that weights, data or model differ from MLPerf's"
)


def init(parser: argparse.ArgumentParser) -> None:
    """Add the cluster and the source of hyper-parameters."""
    add_number(parser, "--nodes", "N", "nodes of the cluster (default 1)", default=1)
    add_number(parser, "--gpus", "N", "GPUs on each node (default: this machine's number)")
    parser.add_argument(
        "--gpu-model", "--gpu", metavar="NAME",
        help=f"{', '.join(gpu_models())}, or another name, written as given (default: this machine's)",
    )  # fmt: skip
    add_number(parser, "--batch", "N", "global batch size (default: the known one with the shortest forecast)")
    parser.add_argument(
        "--from", dest="origin", metavar="SYSTEM",
        help="take this system's hyper-parameters (default: the published result or reference point nearest in batch)",
    )  # fmt: skip
    add_path(parser, "--out", "FILE", "write FILE, which ends in .json (default: print it)")


def fit(parser: argparse.ArgumentParser) -> None:
    """Add the system and the devices."""
    add_system(parser)
    add_number(parser, "--gpus", "N", "total number of devices, or of ranks of a CPU system", required=True)
    parser.add_argument(
        "--gpu-model",
        "--gpu",
        type=_card,
        metavar="NAME",
        help=f"{', '.join(gpu_models())} (default: the system file's)",
    )
    parser.add_argument("--memory", type=float, metavar="GB", help="memory of each device (default: the system file's)")
    add_path(parser, "--out", "FILE", "write FILE, which ends in .json (default: print it)")
    parser.set_defaults(overrides=[])  # the new file extends a system, without overrides


def _card(name: str) -> str:
    """Return the card that a name means, for argparse. Raises ArgumentTypeError for others."""
    if found := gpu_card(name):
        return found
    raise argparse.ArgumentTypeError(f"{name!r}: not one of {', '.join(gpu_models())}; give --memory instead")


def plan(parser: argparse.ArgumentParser) -> None:
    """Add the system and one of its ranks."""
    parser.add_argument("--rank", type=int, default=0, metavar="R", help="rank to dry-run (default 0)")
    add_flag(parser, "--strict", "exit with 1 if a problem would stop the run")
    add_system_arguments(parser, positional=True)


def preflight(parser: argparse.ArgumentParser) -> None:
    """Add the system and its least bandwidth."""
    parser.add_argument(
        "--min-gbit", type=float, metavar="G",
        help="least bandwidth of an all-reduce, in Gbit/s as nccl-tests counts it "
        f"(default: {LEAST_GBIT['cuda']:g} on GPUs, none on CPUs)",
    )  # fmt: skip
    add_system_arguments(parser, positional=True)


def train(parser: argparse.ArgumentParser) -> None:
    """Add the system, the seed and the output."""
    parser.epilog = (
        "Variables that published submissions export, such as DGXSYSTEM, NEXP, SEED and LR, are honoured, or refused "
        "by name (docs/running.md). An argument beats them."
    )
    parser.add_argument(
        "--seed",
        type=seed,
        help="repeat the run that logged this seed (to the bit on a CPU; default: from the system's entropy)",
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
    add_system_arguments(parser, positional=True, named_by=SYSTEM_VARIABLES)


def launch(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `train`, the number of runs and the place."""
    train(parser)
    add_number(parser, "--runs", "N", "number of runs (default: NEXP, or 1; a result needs 10)")
    parser.add_argument(
        "--on",
        choices=["local", "slurm", "docker", "kubernetes"],
        default="local",
        help="where the ranks run (default: this machine)",
    )
    add_flag(parser, "--dry-run", "print the exact commands instead of running them")
    parser.add_argument(
        "--kind", choices=["trainjob", "jobset"], help="Kubeflow object for --on kubernetes (default: trainjob)"
    )
    add_path(parser, "--close", "LOG", "end the log of a run whose ranks are gone (run.sub)")
    parser.add_argument("--reason", help="cause that --close writes (default: the ranks are gone)")
    add_path(parser, "--resolve", "FILE", "write what the exported variables ask for (run.sub)")


def evaluate(parser: argparse.ArgumentParser) -> None:
    """Add the system, which has the data and the model's sizes, and the weights."""
    parser.epilog = EXPECTATION
    add_path(parser, "--checkpoint", "PATH", f"{WEIGHTS_HELP} (default: the system's model.checkpoint)")
    add_system_arguments(parser, positional=True)


def finetune_squad(parser: argparse.ArgumentParser) -> None:
    """Add the system, the questions, the weights and the folder to write."""
    parser.epilog = (
        "The section `finetune` of the system file has epochs, learning rate and lengths; for example "
        "--set finetune.epochs=3. docs/finetuning.md lists the output files."
    )
    parser.add_argument("--system", required=True, help=SYSTEM_HELP)
    add_path(parser, "--train", "FILE", "questions to train on, SQuAD 1.1 or 2.0", required=True)
    add_path(parser, "--dev", "FILE", "questions to answer after every epoch", required=True)
    add_path(parser, "--vocab", "FILE", "the model's vocab.txt", required=True)
    add_path(
        parser,
        "--init",
        "PATH",
        f"weights to start from: {WEIGHTS_HELP} (default: the system's model.checkpoint, else random weights)",
    )
    add_path(parser, "--out", "DIR", "folder to make, or an empty one", required=True)
    parser.add_argument(
        "--seed", type=seed, help="repeat the run that logged this seed (to the bit on a CPU; default: from entropy)"
    )
    add_system_arguments(parser)
