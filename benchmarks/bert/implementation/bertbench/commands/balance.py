"""`bertbench balance`: simulate how evenly each method loads a machine's GPUs."""

import argparse
import math
from dataclasses import replace
from pathlib import Path

from bertbench.balance.cost import BERT_LARGE, CAUSAL_LARGE
from bertbench.balance.random_samples import WIKIPEDIA
from bertbench.balance.simulate import VARIANTS, Outcome, population, simulate
from bertbench.commands import (
    add_flag,
    add_number,
    add_path,
    emit,
    seed,
    whole_numbers,
    words_of,
    write_file,
)
from bertbench.common.errors import ConfigError
from bertbench.common.paths import data_folder
from bertbench.common.progress import Progress
from bertbench.report.simulation_page import page_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the methods and machines to simulate."""
    add_path(
        parser,
        "--lengths",
        "FILE",
        "a data folder, its index, or JSON with `counts`: entry i for length i + 1 (default: Wikipedia's)",
        default=WIKIPEDIA,
    )
    parser.add_argument("--gpus", default="8,64,256,1024", metavar="N,...", help="GPUs (default %(default)s)")
    add_number(parser, "--gpus-per-node", "N", "GPUs of a node (default 8)", default=8)
    parser.add_argument(
        "--batch", default="2,4,8,16,48", metavar="N,...", help="samples per GPU and step (default %(default)s)"
    )
    parser.add_argument(
        "--methods", default="all", metavar="NAME,...", help=f"all, or some of {', '.join(VARIANTS)} (default all)"
    )
    parser.add_argument(
        "--strata-edges", default="128,256,384,512", metavar="N,...",
        help="upper ends of the length strata, in tokens, up to the longest length (default %(default)s)",
    )  # fmt: skip
    add_flag(
        parser, "--causal", "cost of a causal language model: half of attention's term, and the head reads every token"
    )
    parser.add_argument(
        "--attention", type=float, default=1.0, metavar="F",
        help="score with attention's cost F times that by which sequences are dealt (default 1)",
    )  # fmt: skip
    parser.add_argument(
        "--noise", type=float, default=0.0, metavar="S",
        help="score with noise: the standard deviation of the logarithm of a GPU's time in a step (default 0)",
    )  # fmt: skip
    add_number(parser, "--steps", "N", "steps to plan for each (default 200)", default=200)
    parser.add_argument("--seed", type=seed, default=1, help="seed of the order of samples (default 1)")
    add_path(parser, "--html", "OUT", "also write a page with plots")


def run(arguments: argparse.Namespace) -> int:
    """Simulate and print a table."""
    gpus, batches = whole_numbers("--gpus", arguments.gpus), whole_numbers("--batch", arguments.batch)
    names = list(VARIANTS) if arguments.methods == "all" else words_of(arguments.methods, "--methods", VARIANTS)
    if not (0 <= arguments.attention < math.inf and 0 <= arguments.noise <= 1):
        raise ConfigError(
            f"--attention {arguments.attention:g} --noise {arguments.noise:g}: expected a factor of at least 0 and a "
            "standard deviation from 0 to 1"
        )
    for number in gpus:
        if number > arguments.gpus_per_node and number % arguments.gpus_per_node:
            raise ConfigError(
                f"--gpus {number} is not a multiple of --gpus-per-node {arguments.gpus_per_node}; choose whole nodes"
            )
    edges = tuple(sorted(whole_numbers("--strata-edges", arguments.strata_edges)))
    cost = CAUSAL_LARGE if arguments.causal else BERT_LARGE
    scored = replace(cost, quadratic=arguments.attention * cost.quadratic)
    balances = {name: VARIANTS[name]._replace(cost=cost, strata_edges=edges) for name in names}
    lengths: Path = arguments.lengths
    if lengths.parts[:1] == ("data",) and not lengths.exists():
        lengths = data_folder(str(lengths))  # where DATADIR says, as in a system file
    entries = population(lengths, arguments.seed, max(gpus) * max(batches) * arguments.steps)
    per_node, steps, seed = arguments.gpus_per_node, arguments.steps, arguments.seed
    worlds = [(name, gpu, batch) for batch in batches for gpu in gpus for name in names]
    outcomes = []
    with Progress() as progress:
        for name, gpu, batch in worlds:
            world = (gpu, batch, per_node, steps, seed)
            outcomes.append(simulate(entries, name, balances[name], scored, arguments.noise, *world))
            done = f"{len(outcomes)} of {len(worlds)}"
            progress.update(len(outcomes), len(worlds), f"{done}: {name}, {gpu:,} GPUs x {batch}")
    scoring = _scoring(arguments.attention, arguments.noise)
    if arguments.html:
        write_file(arguments.html, page_of(outcomes, entries, per_node, steps, seed, lengths.name, cost, scoring))
    emit(arguments.json, outcomes, *_table(outcomes), scoring)
    return 0


def _scoring(attention: float, noise: float) -> str:
    """Return by which cost and with what noise efficiencies are scored."""
    cost = "the cost that deals" if attention == 1 else f"attention at {attention:g} times the cost that deals"
    shaken = f"noise: the logarithm of a GPU's time has a standard deviation of {noise:g}"
    return f"Scored with {cost}, {'without noise' if noise == 0 else 'and with ' + shaken}."


def _table(outcomes: list[Outcome]) -> list[str]:
    """Return efficiency by method and number of GPUs, a block a batch; bytes and time are for the most GPUs."""
    gpus = list(dict.fromkeys(outcome.gpus for outcome in outcomes))
    lines = []
    for batch in dict.fromkeys(outcome.batch for outcome in outcomes):
        worlds = "".join(f"{number:>8,}" for number in gpus)
        lines.append(f"{f'{batch} samples a GPU; GPUs:':<28}{worlds}  KB/step  plan ms")
        for method in dict.fromkeys(outcome.method for outcome in outcomes):
            row = [outcome for outcome in outcomes if (outcome.batch, outcome.method) == (batch, method)]
            cells = "".join(f"{outcome.efficiency:>8.4f}" for outcome in row)
            kilobytes, plan_ms = row[-1].bytes_per_rank_per_step / 1e3, row[-1].plan_ms_per_step
            lines.append(f"  {method:<26}{cells}{kilobytes:>9,.0f}{plan_ms:>9.2f}")
    return [*lines, "efficiency = mean load / largest load of a step, mean over steps"]
