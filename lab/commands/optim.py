"""`bertbench lab optim`: time LAMB beside torch's fused AdamW at BERT-Large's size."""

import argparse
from dataclasses import asdict

import torch

from bertbench.commands import check_at_least_one
from bertbench.common.errors import ConfigError
from bertbench.common.progress import Progress
from bertbench.machine.processor import processor
from bertbench.model.shape import BertShape
from lab.bench.optim import measure, measure_others
from lab.commands.record import add_record, emit_measured


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the model, the device and the number of steps."""
    parser.add_argument("--system", metavar="SYSTEM", help="parameters of this system's model (default: BERT-Large's)")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="where to measure (default cpu)")
    parser.add_argument("--rounds", type=int, default=7, metavar="N", help="timed steps of each (default 7)")
    parser.add_argument("--foreach", action="store_true", help="also measure LAMB in torch's multi-tensor operations")
    parser.add_argument(
        "--also", nargs="+", default=[], choices=["muon"], metavar="NAME",
        help="also measure these optimizers, one at a time: muon",
    )  # fmt: skip
    add_record(parser)


def run(arguments: argparse.Namespace) -> int:
    """Measure and print a table."""
    check_at_least_one(arguments, "rounds")
    if arguments.device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("--device cuda: found no GPU that torch can use; leave --device out")
    shape = BertShape()
    if arguments.system:
        from bertbench.config import load_system  # noqa: PLC0415 - pydantic, which gpu_check.sh does without

        shape = load_system(arguments.system).model.shape()
    with Progress() as progress:
        device, rounds = torch.device(arguments.device), arguments.rounds
        times = measure(shape, device, rounds, arguments.foreach, progress)
        others = measure_others(shape, device, rounds, arguments.also, progress)
    where = torch.cuda.get_device_name() if arguments.device == "cuda" else f"{times.threads} cores of {processor()}"
    lines = [f"{times.parameters:,} parameters on {where}; peak memory {times.peak_memory_gb:.2f} GB"]
    rows = {"AdamW, torch's fused": times.adamw_fused_ms, f"LAMB, {times.lamb_arithmetic}": times.lamb_ms}
    rows[f"LAMB without a compiler, {times.lamb_plain_arithmetic}"] = times.lamb_plain_ms
    if times.lamb_foreach_ms is not None:
        rows["LAMB, torch's multi-tensor operations"] = times.lamb_foreach_ms
    rows |= {f"{name}, mean": value for name, value in others.items()}
    for name, value in rows.items():
        lines.append(f"{name:<80} {value:>10,.1f} ms  {value / times.adamw_fused_ms:>5.2f} x")
    emit_measured(arguments, {**asdict(times), "others_mean_ms": others, "machine": where}, "\n".join(lines))
    return 0
