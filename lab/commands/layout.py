"""`bertbench lab layout`: measure pipeline bubbles and each dimension's bytes beside the formulas."""

import argparse

from bertbench.commands import check_at_least_one
from bertbench.distributed.affinity import available_cores
from bertbench.machine.processor import processor
from lab.bench.layout import Bubble, Sent, measure_bubbles, measure_bytes
from lab.commands.record import add_record, emit_measured


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the number of steps."""
    parser.add_argument("--steps", type=int, default=5, metavar="N", help="steps of each schedule (default 5)")
    add_record(parser)


def run(arguments: argparse.Namespace) -> int:
    """Measure and print two tables."""
    check_at_least_one(arguments, "steps")
    sent, bubbles = measure_bytes(), measure_bubbles(arguments.steps)
    content = {"machine": processor(), "cores": available_cores(), "bytes": sent, "bubbles": bubbles}
    emit_measured(arguments, content, _tables(sent, bubbles))
    return 0


def _tables(sent: list[Sent], bubbles: list[Bubble]) -> str:
    lines = [f"{'layout (d x t x p)':<26}{'rank':>5}  {'dimension':<12}{'bytes sent':>12}{'by formula':>12}"]
    for one in sent:
        lines.append(f"{one.layout:<26}{one.rank:>5}  {one.dimension:<12}{one.counted:>12,}{one.formula:>12,}")
    lines.append(
        f"\nidle over busy time on {processor()}, {available_cores()} cores: (p - 1) / (v m); replayed from processor\n"
        "times of every pass, as if each rank had a core; by the clock, if there is a core for each rank"
    )
    lines.append(f"{'schedule':<13}{'p':>3}{'v':>3}{'m':>4}{'formula':>10}{'replayed':>10}{'clock':>10}")
    for row in bubbles:
        clock = "" if row.clock is None else f"{row.clock:.3f}"
        lines.append(
            f"{row.schedule:<13}{row.pipeline:>3}{row.virtual_stages:>3}{row.microbatches:>4}{row.formula:>10.3f}"
            f"{row.replayed:>10.3f}{clock:>10}"
        )
    return "\n".join(lines)
