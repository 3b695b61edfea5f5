"""`bertbench bench overlap`: communication that each clip mode hides behind the backward pass.

On a machine of several GPUs from traces of their kernels, elsewhere between two virtual hosts.
"""

import argparse
import json
import sys
from dataclasses import asdict

import torch

from bertbench.bench.network import obstacle
from bertbench.bench.overlap import measure
from bertbench.bench.trace import Traced, measure_traces
from bertbench.common.errors import ConfigError
from bertbench.machine.processor import processor


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """How much to measure."""
    parser.add_argument(
        "--rounds", type=int, default=7, metavar="N", help="steps of each mode and bandwidth (default 7)"
    )
    parser.add_argument("--batch", type=int, default=4, metavar="N", help="samples a rank and step (default 4)")


def run(arguments: argparse.Namespace) -> int:
    """Measure, print a table; where two virtual hosts can't be had, say so and measure nothing."""
    if arguments.rounds < 1 or arguments.batch < 1:
        raise ConfigError("--rounds and --batch must be at least 1")
    if torch.cuda.device_count() > 1:
        return _print_traces(measure_traces(arguments.rounds, arguments.batch), arguments.json)
    if reason := obstacle():
        print(f"skipped: {reason}", file=sys.stderr)
        if arguments.json:
            print("[]")
        return 0
    measured = measure(arguments.rounds, arguments.batch)
    if arguments.json:
        print(json.dumps([asdict(row) for row in measured.rows], indent=2))
        return 0
    print(
        f"{measured.parameters:,} gradients in {measured.buckets} buckets, two ranks on {processor()}, "
        f"backward pass {measured.backward_ms:,.0f} ms"
    )
    print(f"{'Mbit/s':>8} {'all-reduce ms':>14}  {'clip':<8}{'step ms':>9}{'exposed ms':>12}{'hidden':>8}")
    for row in measured.rows:
        print(
            f"{row.bandwidth_mbit:>8,.0f} {measured.all_reduce_ms[row.bandwidth_mbit]:>14,.0f}  {row.mode:<8}"
            f"{row.step_ms:>9,.0f}{row.exposed_ms:>12,.0f}{row.hidden:>8.0%}"
        )
    return 0


def _print_traces(rows: list[Traced], as_json: bool) -> int:
    if as_json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
        return 0
    print(f"BERT-Large in bf16 on {rows[0].gpus} GPUs of kind {torch.cuda.get_device_name()}")
    print(f"{'clip':<8}{'step ms':>9}{'communication ms':>18}{'exposed ms':>12}{'hidden':>8}")
    for row in rows:
        print(f"{row.mode:<8}{row.step_ms:>9.1f}{row.communication_ms:>18.1f}{row.exposed_ms:>12.1f}{row.hidden:>8.0%}")
    return 0
