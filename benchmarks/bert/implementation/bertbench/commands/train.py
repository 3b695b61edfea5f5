"""`bertbench train SYSTEM`: one timed run.

Called alone it starts the system's ranks; called by torchrun or Slurm it is one of them.
"""

import argparse
import json
import os
import secrets
import sys
from pathlib import Path

from bertbench.commands import add_system_arguments
from bertbench.config import System, load_system
from bertbench.data.manifest import Manifest
from bertbench.launch import TARGET_MISSED, check_startable, run_ranks
from bertbench.machine import differences
from bertbench.paths import data_folder, runs_folder, weights_file
from bertbench.progress import RunProgress
from bertbench.rank import as_rank
from bertbench.rendezvous import Ranks, launched_ranks
from bertbench.results import ResultFiles, reserve
from bertbench.train import check_weights, open_data, train
from compliance.log import CannotJudge, read_events
from compliance.run import RunFacts

_SEED_BITS = 32


def add_arguments(parser: argparse.ArgumentParser, default_system: str | None = None) -> None:
    """A system, a seed, and where to write."""
    parser.add_argument(
        "system", nargs="?" if default_system else None, default=default_system, metavar="SYSTEM",
        help="name of a system, or path of a system file",
    )  # fmt: skip
    parser.add_argument(
        "--seed", type=int, help="repeat the run that logged this seed (default: from the system's entropy)"
    )
    parser.add_argument(
        "--result",
        type=Path,
        metavar="FILE",
        help="log to write (default: the next runs/SYSTEM/bert/result_<n>.txt; LOGDIR moves runs/)",
    )
    add_system_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Exit code 0: target reached; 3: ended in order without it; 1 or 2: failed."""
    system = load_system(arguments.system, arguments.overrides)
    ranks = launched_ranks(os.environ)
    if ranks is not None:
        return _as_rank(system, ranks, arguments)
    files, code = train_once(system, arguments)
    if arguments.json:
        print(json.dumps(outcome(files), indent=2))
    return code


def train_once(system: System, arguments: argparse.Namespace) -> tuple[ResultFiles, int]:
    """One run with all its ranks on this machine; returns its files and exit code."""
    check_startable(system)
    open_data(system)  # what is wrong with it is better said once than by every rank
    if system.model.checkpoint is not None:
        check_weights(system, weights_file(system.model.checkpoint))
    files = _reserved(system, arguments)
    return files, run_ranks(system, [arguments.system, *rank_options(arguments)], files)


def outcome(files: ResultFiles) -> dict[str, object]:
    """What `train --json` prints of a run, read from its log."""
    try:
        facts = RunFacts(read_events(files.log))
    except CannotJudge:  # it never started, and left no log
        return {"log": None, "status": "not started"}
    return {
        "log": str(files.log),
        "status": facts.status,
        "seed": facts.seed,
        "accuracy": facts.best_accuracy,
        "samples": facts.samples,
        "time_to_train_s": facts.time_to_train_s,
    }


def _reserved(system: System, arguments: argparse.Namespace) -> ResultFiles:
    return ResultFiles(arguments.result) if arguments.result else reserve(runs_folder(), system.name)


def rank_options(arguments: argparse.Namespace) -> list[str]:
    """The options that every rank of a run is started with."""
    overrides = [word for override in arguments.overrides for word in ("--set", override)]
    seed = [] if arguments.seed is None else ["--seed", str(arguments.seed)]
    return [*overrides, *seed]


def _as_rank(system: System, ranks: Ranks, arguments: argparse.Namespace) -> int:
    """This process is one rank."""
    with as_rank(system, ranks) as world:
        seed = world.from_first(secrets.randbits(_SEED_BITS) if arguments.seed is None else arguments.seed)
        files = _reserved(system, arguments) if world.leads else None
        if files:
            files.describe(system, seed)
        if ranks.local_rank == 0:
            for difference in differences(system.hardware):
                print(f"warning: {difference}", file=sys.stderr)
        with RunProgress(system, enabled=world.leads) as progress:
            progress.say(f"{system.name}: ranks {world.size}, seed {seed}, log {files and files.log}")
            ended = train(system, world, seed, files, progress)
            progress.say(f"{ended.status}: {ended.reason or 'target reached'}")
            progress.say(_against_guessing(system, ended.accuracy))
    return 0 if ended.reason is None else TARGET_MISSED


def _against_guessing(system: System, accuracy: float) -> str:
    guess = Manifest.read(data_folder(system.data.eval_path or system.data.path)).most_frequent_token
    if guess is None:
        return f"accuracy {accuracy:.4f}"
    return (
        f"accuracy {accuracy:.4f}; always guessing the most frequent token, {guess.token!r}, scores "
        f"{guess.accuracy:.4f}: {accuracy / guess.accuracy:.1f} times as much"
    )
