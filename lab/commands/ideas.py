"""`bertbench lab ideas`: time each idea of a CPU's step beside its plain alternative."""

import argparse

import torch

from bertbench.commands import check_at_least_one, seed, words_of
from bertbench.common.progress import Progress
from bertbench.config import load_system
from bertbench.distributed.memory import keep_freed_memory
from bertbench.machine.processor import processor
from bertbench.model.sizes import SHAPES
from lab.bench.idea_trials import IDEAS
from lab.bench.ideas import RANK_IDEAS, Row, Setting, measure
from lab.commands.record import add_record, emit_measured

_ALL = (*IDEAS, *RANK_IDEAS)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ideas, rounds and the seed."""
    parser.add_argument("--ideas", default=",".join(_ALL), metavar="A,B", help=f"of {', '.join(_ALL)} (default all)")
    parser.add_argument("--rounds", type=int, default=7, metavar="N", help="timed calls of each side (default 7)")
    parser.add_argument("--seed", type=seed, default=1, help="seed of lengths, tokens and weights (default 1)")
    add_record(parser)


def run(arguments: argparse.Namespace) -> int:
    """Measure and print a table."""
    names = words_of(arguments.ideas, "--ideas", _ALL)
    check_at_least_one(arguments, "rounds")
    torch.set_num_threads(1)
    keep_freed_memory()  # a run does the same
    demo = load_system("cpu_demo")
    assert demo.data.recipe is not None
    shapes = {**SHAPES, "demo": demo.model.shape()}
    setting = Setting(shapes, demo.local_batch, demo.data.recipe.short_seq_prob, arguments.seed)
    ideas = {name: idea for name, idea in IDEAS.items() if name in names}
    rank_ideas = {name: idea for name, idea in RANK_IDEAS.items() if name in names}
    with Progress() as progress:
        rows = measure(ideas, rank_ideas, setting, arguments.rounds, progress)
    machine = {"processor": processor(), "threads": 1, "torch": torch.__version__, "rounds": arguments.rounds}
    emit_measured(arguments, {"machine": machine, "results": rows}, _table(rows, arguments.rounds))
    return 0


def _table(rows: list[Row], rounds: int) -> str:
    lines = [f"one thread of {processor()}, sums and threads on two ranks; medians of {rounds} calls in turns"]
    lines.append(f"{'idea':<10}  {'beside':<28}  {'ms':>8}  {'ours, ms':>8}  {'ratio':>7}  {'size':<44}  file")
    lines += [
        f"{row.idea:<10}  {row.plain:<28}  {_ms(row.plain_ms):>8}  {_ms(row.ours_ms):>8}  {row.ratio:>5.2f} x  "
        f"{row.size:<44}  {row.file}"
        for row in rows
    ]
    return "\n".join(lines)


def _ms(milliseconds: float) -> str:
    return f"{milliseconds:,.{1 if milliseconds >= 10 else 3}f}"
