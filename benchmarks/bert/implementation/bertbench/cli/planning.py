"""Commands that rehearse a run: a dry run, and load balancing."""

import argparse
import math
from dataclasses import replace
from typing import TYPE_CHECKING

from bertbench.cli.arguments import (
    add_flag,
    add_number,
    add_path,
    add_starting_weights,
    add_system_arguments,
    announce,
    emit,
    seed,
    system_of,
    whole_numbers,
    words_of,
)
from bertbench.common.errors import ConfigError
from bertbench.common.progress import Progress
from bertbench.common.reads import Reads

if TYPE_CHECKING:
    from bertbench.balance.plan import Balance
    from bertbench.balance.simulate import SimulatedBalance


def add_plan_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the system and one of its ranks."""
    parser.add_argument("--rank", type=int, default=0, metavar="R", help="rank to dry-run (default 0)")
    add_flag(parser, "--strict", "exit with 1 if a problem would stop the run")
    add_starting_weights(parser)
    add_system_arguments(parser, Reads("plan"), positional=True)


def plan(arguments: argparse.Namespace) -> int:
    """Dry-run any rank without its machine; return 1 if --strict is given and there are problems, else 0."""
    system = system_of(arguments)
    announce(arguments, "counting memory and steps")
    from bertbench.plan.dry_run import dry_run
    from bertbench.plan.dry_run_text import dry_run_json, dry_run_lines

    planned = dry_run(system, arguments.rank)
    emit(arguments, dry_run_json(planned), *dry_run_lines(planned))
    return 1 if arguments.strict and planned.problems else 0


def add_balance_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the methods and machines to simulate."""
    from bertbench.balance.random_samples import WIKIPEDIA
    from bertbench.balance.simulate import VARIANTS

    add_path(
        parser,
        "--lengths",
        "FILE",
        "a data folder, its index, or JSON with `counts`: entry i for length i + 1 (default: Wikipedia's)",
        default=WIKIPEDIA,
    )
    parser.add_argument(
        "--gpus", default="8,64,256,1024", metavar="N,...", help="numbers of GPUs (default %(default)s)"
    )
    add_number(parser, "--gpus-per-node", "N", "GPUs per node (default 8)", default=8)
    parser.add_argument(
        "--batch", default="2,4,8,16,48", metavar="N,...", help="samples per GPU and step (default %(default)s)"
    )
    parser.add_argument(
        "--methods", default="all", metavar="NAME,...", help=f"all, or a list of {', '.join(VARIANTS)} (default all)"
    )
    parser.add_argument(
        "--strata-edges", default="128,256,384,512", metavar="N,...",
        help="upper ends of the length strata, in tokens, up to the longest length (default %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--strata-quotas", metavar="N,...",
        help="also simulate stratified methods with these numbers of samples per stratum in a GPU's batch, such as "
        "6,3,2,5 of arXiv 2402.02447 for a batch of 16 (default: only the dataset's shares)",
    )  # fmt: skip
    add_flag(
        parser, "--causal",
        "use the cost of a causal language model: half of the attention term, and a head that reads every token",
    )  # fmt: skip
    parser.add_argument(
        "--attention", type=float, default=1.0, metavar="F",
        help="score with F times the attention cost by which sequences are assigned (default 1)",
    )  # fmt: skip
    parser.add_argument(
        "--noise", type=float, default=0.0, metavar="S",
        help="add noise to the scores: standard deviation of the logarithm of a GPU's step time (default 0)",
    )  # fmt: skip
    add_number(
        parser, "--steps", "N", "steps to plan for each method, batch and number of GPUs (default 200)", default=200
    )
    parser.add_argument("--seed", type=seed, default=1, help="seed of the samples' order (default 1)")


def balance(arguments: argparse.Namespace) -> int:
    """Simulate how evenly each load-balancing method loads a machine's GPUs, and print a table."""
    outcomes = _simulated(arguments)
    emit(arguments, outcomes, *_balance_table(outcomes), _scoring(arguments.attention, arguments.noise))
    return 0


def _simulated(arguments: argparse.Namespace) -> list["SimulatedBalance"]:
    """Simulate every method on every machine that the arguments name.

    Raises ConfigError for impossible arguments, and for data with fewer samples than a global batch.
    """
    from bertbench.balance.cost import BERT_LARGE, CAUSAL_LARGE
    from bertbench.balance.simulate import VARIANTS, population, simulate

    gpu_counts = whole_numbers("--gpus", arguments.gpus)
    batches = whole_numbers("--batch", arguments.batch)
    methods = list(VARIANTS)
    if arguments.methods != "all":
        methods = words_of(arguments.methods, "--methods", VARIANTS)
    if not (0 <= arguments.attention < math.inf and 0 <= arguments.noise <= 1):
        raise ConfigError(
            f"--attention {arguments.attention:g} --noise {arguments.noise:g}: expected a factor of at least 0 and a "
            "standard deviation from 0 to 1"
        )
    per_node = arguments.gpus_per_node
    for gpus in gpu_counts:
        if gpus > per_node and gpus % per_node:
            raise ConfigError(f"--gpus {gpus} is not a multiple of --gpus-per-node {per_node}; choose a multiple of it")
    edges = tuple(whole_numbers("--strata-edges", arguments.strata_edges))
    if list(edges) != sorted(set(edges)):
        raise ConfigError(f"--strata-edges {arguments.strata_edges}: expected edges that increase; quotas follow them")
    cost = CAUSAL_LARGE if arguments.causal else BERT_LARGE
    scored = replace(cost, quadratic=arguments.attention * cost.quadratic)
    balances = {method: VARIANTS[method]._replace(cost=cost, strata_edges=edges) for method in methods}
    if arguments.strata_quotas is not None:
        balances = _with_quotas(balances, _quotas(arguments.strata_quotas, edges, batches))
    entries = population(arguments.lengths, arguments.seed, max(gpu_counts) * max(batches) * arguments.steps)
    worlds = [(name, gpus, batch) for batch in batches for gpus in gpu_counts for name in balances]
    outcomes = []
    with Progress() as progress:
        for name, gpus, batch in worlds:
            outcomes.append(
                simulate(
                    entries, name, balances[name], scored, arguments.noise,
                    gpus, batch, per_node, arguments.steps, arguments.seed,
                )
            )  # fmt: skip
            done = f"{len(outcomes)} of {len(worlds)}"
            progress.update(len(outcomes), len(worlds), f"{done}: {name}, {gpus:,} GPUs x {batch}")
    return outcomes


def _quotas(text: str, edges: tuple[int, ...], batches: list[int]) -> tuple[int, ...]:
    """Return the quotas of --strata-quotas. Raises ConfigError if they don't fit the strata or a batch."""
    quotas = tuple(whole_numbers("--strata-quotas", text, least=0))
    if len(quotas) != len(edges):
        raise ConfigError(
            f"--strata-quotas {text}: found {len(quotas)} quotas for {len(edges)} strata (--strata-edges); give one "
            "for each"
        )
    if any(batch != sum(quotas) for batch in batches):
        raise ConfigError(
            f"--strata-quotas {text}: the quotas sum to {sum(quotas)}, which must equal the batch; give --batch "
            f"{sum(quotas)}, or other quotas"
        )
    return quotas


def _with_quotas(balances: dict[str, "Balance"], quotas: tuple[int, ...]) -> dict[str, "Balance"]:
    """Return the balances, each stratified one followed by a copy with quotas. Raises ConfigError without any."""
    from bertbench.balance.plan import STRATIFIED

    with_quotas = {}
    for name, balance in balances.items():
        with_quotas[name] = balance
        if balance.method in STRATIFIED:
            label = f"{name} {','.join(map(str, quotas))}"
            with_quotas[label] = balance._replace(strata_quotas=quotas)
    if len(with_quotas) == len(balances):
        raise ConfigError(
            f"--strata-quotas: none of --methods {','.join(balances)} draws by strata; add one that does, or leave "
            "--strata-quotas out"
        )
    return with_quotas


def _scoring(attention: float, noise: float) -> str:
    """Return a sentence that says with which cost and with how much noise efficiencies are scored."""
    cost = "the assignment's cost"
    if attention != 1:
        cost = f"attention at {attention:g} times {cost}"
    if noise == 0:
        return f"Scored with {cost}, without noise."
    return f"Scored with {cost}, and with noise: the logarithm of a GPU's time has a standard deviation of {noise:g}."


def _balance_table(outcomes: list["SimulatedBalance"]) -> list[str]:
    """Return a table of efficiencies for each batch; bytes and planning times are those of the most GPUs."""
    gpus = list(dict.fromkeys(outcome.gpus for outcome in outcomes))
    width = max(26, *(len(outcome.method) for outcome in outcomes))
    lines = []
    for batch in dict.fromkeys(outcome.local_batch for outcome in outcomes):
        worlds = "".join(f"{number:>8,}" for number in gpus)
        title = f"{batch} samples per GPU; GPUs:"
        lines.append(f"{title:<{width + 2}}{worlds}  KB/step  plan ms")
        for method in dict.fromkeys(outcome.method for outcome in outcomes):
            row = [outcome for outcome in outcomes if (outcome.local_batch, outcome.method) == (batch, method)]
            cells = "".join(f"{outcome.load_efficiency:>8.4f}" for outcome in row)
            kilobytes, plan_ms = row[-1].bytes_per_rank_per_step / 1e3, row[-1].plan_ms_per_step
            lines.append(f"  {method:<{width}}{cells}{kilobytes:>9,.0f}{plan_ms:>9.2f}")
    return [*lines, "efficiency = mean load / largest load of a step, mean over steps"]
