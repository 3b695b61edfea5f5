"""`bertbench bench cost`: measure the cost of a sequence on this machine, in the form of `data.cost`."""

import argparse
import json
from dataclasses import asdict

import torch

from bertbench.commands import add_system_arguments, emit, say_unread, seed, system_of
from bertbench.common.errors import ConfigError, RunError
from bertbench.common.progress import Progress
from bertbench.machine.processor import processor
from bertbench.machine.sequence_cost import measure
from bertbench.model.shape import SHAPES

_SIZE = "small"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which model."""
    parser.add_argument(
        "system",
        nargs="?",
        metavar="SYSTEM",
        help="fit the model and the device of this system (default: a small model, on the CPU)",
    )
    parser.add_argument("--seed", type=seed, default=1, help="seed of weights and tokens (default 1)")
    add_system_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Measure, then print the fit and the line for the system file."""
    if arguments.overrides and not arguments.system:
        raise ConfigError("--set changes a system, and none is given; give SYSTEM too, or leave --set out")
    system = system_of(arguments) if arguments.system else None
    if system:
        say_unread(system, arguments)
    shape = system.model.shape() if system else SHAPES[_SIZE]
    device = torch.device(system.launch.device if system else "cpu")
    name = system.name if system else _SIZE
    with Progress() as progress:
        fit = measure(shape, device, arguments.seed, progress)
    if fit.linear <= 0:
        raise RunError(
            f"{name}: the measured times fall as tokens grow, so no cost can be fitted; "
            "measure on a quiet machine, or a larger model"
        )
    device_name = torch.cuda.get_device_name(device) if device.type == "cuda" else processor()
    cost = {"linear": float(f"{fit.linear:.4g}"), "quadratic": float(f"{max(0.0, fit.quadratic):.4g}")}
    emit(
        arguments.json,
        {"machine": device_name, "model": name, **asdict(fit)},
        f"{name} on {device_name}: a step takes {fit.constant:.2f} ms + {1e3 * fit.linear:.3f} us a token "
        f"+ {1e6 * fit.quadratic:.3f} ns a token squared (R2 {fit.r_squared:.3f})\n"
        f"for the system file: {json.dumps({'data': {'cost': cost}})}",
    )
    return 0
