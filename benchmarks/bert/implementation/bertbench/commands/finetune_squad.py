"""`bertbench finetune squad`: fine-tune on SQuAD and answer the development questions.

Called directly it starts the system's ranks; started by torchrun or Slurm it is one of them.
"""

import argparse
import json

from bertbench.commands import emit, passed_on, say_unread, system_of
from bertbench.commands.finetune_score import table
from bertbench.common.progress import Progress
from bertbench.config import System
from bertbench.distributed.ranks import Ranks
from bertbench.finetune.output import reserve
from bertbench.finetune.run import finetune
from bertbench.finetune.squad_inputs import Inputs
from bertbench.launch.local import check_startable, run_once
from bertbench.launch.rank import agreed_seed, as_rank, ranks_of


def run(arguments: argparse.Namespace) -> int:
    """Return exit code 0 after all epochs, 1 or 2 on failure."""
    system = system_of(arguments)
    ranks = ranks_of(system)
    if ranks is not None:
        return _as_rank(system, ranks, arguments)
    check_startable(system, "fine-tuning runs on one; add --set hardware.number_of_nodes=1")
    _inputs(system, arguments)  # report bad inputs once, not on every rank
    files = reserve(arguments.out)
    say_unread(system, arguments)
    words = passed_on(arguments, "system", "train", "dev", "vocab", "init", "out", "seed")
    code = run_once(system, ["finetune", "squad", *words], files)
    if code == 0:
        content = json.loads(files.scores.read_text(encoding="utf-8"))
        emit(arguments.json, content, *table(content["scores"]), f"wrote {arguments.out}")
    return code


def _as_rank(system: System, ranks: Ranks, arguments: argparse.Namespace) -> int:
    with as_rank(system, ranks) as world:
        inputs = _inputs(system, arguments)
        seed = agreed_seed(world, arguments.seed)
        files = reserve(arguments.out) if world.leads else None
        if files:
            files.describe(system, seed)
        with Progress(enabled=world.leads) as progress:
            progress.message(f"{system.name}: ranks {world.size}, seed {seed}, log {files and files.log}")
            finetune(system, world, seed, inputs, files, progress)
    return 0


def _inputs(system: System, arguments: argparse.Namespace) -> Inputs:
    return Inputs.open(system, arguments.train, arguments.dev, arguments.vocab, arguments.init)
