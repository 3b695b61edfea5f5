"""`bertbench lab overlap`: measure the communication that each clip mode overlaps with the backward pass.

On several GPUs it reads kernel traces; elsewhere it uses two virtual hosts.
"""

import argparse
import sys

import torch

from bertbench.commands import check_at_least_one, emit
from bertbench.machine.processor import processor
from lab.bench.network import obstacle
from lab.bench.overlap import Measured, measure
from lab.bench.trace import Traced, measure_traces
from lab.commands.record import add_record, emit_measured


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the number of steps and the batch."""
    parser.add_argument(
        "--rounds", type=int, default=7, metavar="N", help="steps of each mode and bandwidth (default 7)"
    )
    parser.add_argument("--batch", type=int, default=4, metavar="N", help="samples a rank and step (default 4)")
    add_record(parser)


def run(arguments: argparse.Namespace) -> int:
    """Measure and print a table; without virtual hosts, print the reason and stop."""
    check_at_least_one(arguments, "rounds", "batch")
    if torch.cuda.device_count() > 1:
        traced = measure_traces(arguments.rounds, arguments.batch)
        emit_measured(arguments, traced, _traces(traced))
    elif reason := obstacle():
        print(f"skipped: {reason}", file=sys.stderr)
        emit(arguments.json, [])
    else:
        measured = measure(arguments.rounds, arguments.batch)
        emit_measured(arguments, measured.rows, _table(measured))
    return 0


def _table(measured: Measured) -> str:
    lines = [
        f"{measured.parameters:,} gradients in {measured.buckets} buckets, two ranks on {processor()}, "
        f"backward pass {measured.backward_ms:,.0f} ms",
        f"{'Mbit/s':>8} {'all-reduce ms':>14}  {'clip':<8}{'step ms':>9}{'exposed ms':>12}{'hidden':>8}",
    ]
    for row in measured.rows:
        lines.append(
            f"{row.bandwidth_mbit:>8,.0f} {measured.all_reduce_ms[row.bandwidth_mbit]:>14,.0f}  {row.mode:<8}"
            f"{row.step_ms:>9,.0f}{row.exposed_ms:>12,.0f}{row.hidden:>8.0%}"
        )
    return "\n".join(lines)


def _traces(rows: list[Traced]) -> str:
    lines = [
        f"BERT-Large in bf16 on {rows[0].gpus} {torch.cuda.get_device_name()} GPUs",
        f"{'clip':<8}{'step ms':>9}{'communication ms':>18}{'exposed ms':>12}{'hidden':>8}",
    ]
    for row in rows:
        lines.append(
            f"{row.mode:<8}{row.step_ms:>9.1f}{row.communication_ms:>18.1f}{row.exposed_ms:>12.1f}{row.hidden:>8.0%}"
        )
    return "\n".join(lines)
