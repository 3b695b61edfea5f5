"""`lab ideas`: time each idea of a CPU's step and its plain alternative."""

import argparse
from dataclasses import replace
from functools import partial

import torch

from bertbench.commands import words_of
from bertbench.common.progress import Progress
from bertbench.config import load_system
from bertbench.distributed.memory import keep_freed_memory
from bertbench.distributed.spawn import on_ranks
from bertbench.distributed.world import World
from bertbench.machine.processor import processor
from bertbench.model.shape import SHAPES
from lab.bench.harness import Found, command, option, table
from lab.bench.idea_trials import IDEAS
from lab.bench.trial import Setting, Trial, TrialRow, Trials, compare

_ON_RANKS = "sums"
_ALL = (*IDEAS, _ON_RANKS)

_COLUMNS = {
    "idea": "{0.idea}", "plain": "{0.plain}", "ms": "{0.plain_ms:,.4g}", "ours, ms": "{0.ours_ms:,.4g}",
    "ratio": "{0.ratio:.2f} x",
    "95 %": "{0.ratio_low:.2f} to {0.ratio_high:.2f}", "size": "{0.size}", "file": "{0.file}",
}  # fmt: skip


def measure(arguments: argparse.Namespace, progress: Progress) -> Found:
    """Return the rows of the ideas; one that this machine can't measure gets none."""
    names = words_of(arguments.ideas, "--ideas", _ALL)
    torch.set_num_threads(1)
    keep_freed_memory()  # a run does the same
    demo = load_system("cpu_demo")
    assert demo.data.recipe is not None
    shapes = {**SHAPES, "demo": demo.model.shape()}
    setting = Setting(shapes, demo.local_batch, demo.data.recipe.short_seq_prob, arguments.seed)
    rows: list[TrialRow] = []
    for number, name in enumerate(names):
        progress.update(number, len(names), f"measuring {name}")
        found = rows_of(name, setting, arguments.rounds)
        rows += found
        if not found:
            progress.message(f"{name}: not measured, because this machine can't do both")
    machine = {"processor": processor(), "threads": 1, "torch": torch.__version__, "rounds": arguments.rounds}
    head = f"one thread of {processor()}, sums on two ranks; medians of {arguments.rounds} calls in turns"
    return Found({"machine": machine, "results": rows}, [head, *table(rows, _COLUMNS)])


def rows_of(name: str, setting: Setting, rounds: int) -> list[TrialRow]:
    """Return an idea's rows. Raises RunError if results disagree."""
    if name == _ON_RANKS:
        return list(on_ranks(2, measure_sums, setting, rounds))
    torch.manual_seed(setting.seed)
    return [compare(name, trial, rounds) for trial in IDEAS[name](setting)]


def measure_sums(world: World, setting: Setting, rounds: int) -> list[TrialRow]:
    """Return the rows of `sums`, by this rank's clock."""
    torch.set_num_threads(1)
    return [compare(_ON_RANKS, trial, rounds) for trial in sums(setting, world)]


def sums(setting: Setting, world: World) -> Trials:
    """Sum over the ranks of a machine in shared memory."""
    gloo = replace(world, shared=None)
    parameters = sum(parameter.numel() for parameter in setting.model("demo").parameters())
    for count, size in ((parameters, f"demo's gradient, {parameters:,} numbers"), (1, "one number")):
        own = torch.randn(count, generator=torch.Generator().manual_seed(setting.seed + world.rank))
        sides = lambda numbers: (gloo.sum(numbers),), lambda numbers: (world.sum(numbers),)
        if world.shared is not None:
            yield Trial("gloo", size, "distributed/shared_memory.py", sides, partial(_together, world, own))


def _together(world: World, numbers: torch.Tensor) -> tuple[torch.Tensor]:
    """Return a copy, once all ranks are here."""
    world.sum(torch.zeros(1))
    return (numbers.clone(),)


_NAMES = ",".join(_ALL)
add_arguments, run = command(
    measure, ("--rounds", 7, "timed calls of each side"),
    more=[option("--ideas", default=_NAMES, metavar="A,B", help=f"of {_NAMES.replace(',', ', ')} (default all)")],
    seeds="lengths, tokens and weights",
)  # fmt: skip
