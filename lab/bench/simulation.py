"""`bertbench lab simulation`: draw what `bertbench balance` simulates: efficiencies, and one step before and after."""

import argparse
from collections.abc import Sequence

from bertbench.balance.cost import CostModel
from bertbench.balance.simulate import VARIANTS, SimulatedBalance, planner
from bertbench.cli.arguments import add_path, emit, write_file
from bertbench.cli.planning import add_balance_arguments, simulated
from bertbench.data.store.columns import Index
from bertbench.report.charts import Axis, lines, scatter
from bertbench.report.page import page, panels, paragraph, section

_BEFORE, _AFTER = "none", "planned"
_STEP_SHOWN = 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the simulation and of the page."""
    add_balance_arguments(parser)
    add_path(parser, "--out", "FILE", "page to write", required=True)


def run(arguments: argparse.Namespace) -> int:
    """Simulate, and write the page."""
    simulation = simulated(arguments)
    text = page_of(
        simulation.outcomes, simulation.entries_N, arguments.gpus_per_node, arguments.steps, arguments.seed,
        simulation.lengths.name, simulation.cost, simulation.scoring,
    )  # fmt: skip
    write_file(arguments.out, text, "--out")
    emit(arguments.json, {"page": str(arguments.out)})
    return 0


def page_of(
    outcomes: Sequence[SimulatedBalance],
    entries_N: Index,
    gpus_per_node: int,
    steps: int,
    seed: int,
    source: str,
    cost: CostModel,
    scoring: str,
) -> str:
    """Return one self-contained HTML file; samples were assigned by `cost`; `scoring` describes other costs, if any."""
    batches = list(dict.fromkeys(outcome.local_batch for outcome in outcomes))
    return page(
        "Load balance",
        paragraph(
            f"Simulated: {steps} steps of every method, lengths from {source}, seed {seed}. Efficiency is the mean "
            "load of a step over its largest load: the share of the step in which the average GPU works."
        ),
        paragraph(scoring),
        section(
            "Efficiency by method",
            panels(*(_efficiencies(outcomes, batch) for batch in batches)),
        ),
        section(
            "One step",
            paragraph("Loads according to the cost by which samples are assigned, without noise."),
            panels(*_one_step(outcomes, entries_N, gpus_per_node, seed, cost)),
        ),
    )


def _efficiencies(outcomes: Sequence[SimulatedBalance], batch: int) -> str:
    series: dict[str, list[tuple[float, float]]] = {}
    for outcome in outcomes:
        if outcome.local_batch == batch:
            series.setdefault(outcome.method, []).append((outcome.gpus, outcome.load_efficiency))
    return lines(f"{batch} samples per GPU", series, Axis("GPUs", log2=True), Axis("efficiency", high=1.0))


def _one_step(
    outcomes: Sequence[SimulatedBalance], entries_N: Index, gpus_per_node: int, seed: int, cost: CostModel
) -> list[str]:
    """Plot the load of every GPU, with samples assigned as drawn and by cost, for the fewest and the most GPUs."""
    worlds = sorted({outcome.gpus for outcome in outcomes})
    batches = sorted({outcome.local_batch for outcome in outcomes})
    batch = batches[len(batches) // 2]
    figures = []
    for gpus in dict.fromkeys((worlds[0], worlds[-1])):
        series = {}
        for method in (_BEFORE, _AFTER):
            made = planner(entries_N, VARIANTS[method]._replace(cost=cost), gpus, batch, gpus_per_node, seed)
            loads = made.loads(made.plan(_STEP_SHOWN))
            series[method] = list(enumerate((loads / loads.mean()).tolist()))
        figures.append(
            scatter(
                f"Load of each of {gpus:,} GPUs x {batch} in a step",
                series,
                Axis("GPU"),
                Axis("load / mean load", low=0.0),
                level=("mean", 1.0),
            )
        )
    return figures
