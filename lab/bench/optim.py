"""`lab optim`: time a step of LAMB and of torch's fused AdamW on BERT's parameters.

All optimizers update the same weights from the same gradients; medians count. New gradients are drawn before every
step, untimed; clipping's global norm is left out.
"""

import argparse
import resource
import statistics
from collections.abc import Callable
from functools import partial

import torch

from bertbench.common.progress import Progress
from bertbench.config.optimizer import OptimizerName, OptimizerSettings
from bertbench.machine.processor import processor
from bertbench.model.bert import Bert
from bertbench.model.shape import BertShape
from bertbench.optim.adam import MultiTensorAdam
from bertbench.optim.build import build_optimizer, plain_lamb
from bertbench.optim.foreach import foreach_step
from bertbench.optim.fused import CompilerMissing, FusedStep
from bertbench.optim.state import Step
from lab.bench.harness import (
    Found,
    Ratio,
    add_device,
    command,
    in_turns,
    machine_name,
    milliseconds,
    paired_ratio,
    table,
)

_RATE = 1e-4
_WARM_UP = 2  # the first steps fault in memory pages


def measure(arguments: argparse.Namespace, progress: Progress) -> Found:
    """Time the optimizers that the options name."""
    device = torch.device(arguments.device)
    shape = BertShape()
    if arguments.system:
        from bertbench.config import load_system  # noqa: PLC0415 - pydantic, which not every machine with a GPU has

        shape = load_system(arguments.system).model.shape()
    times, arithmetic = lamb_and_adamw(shape, device, arguments.rounds, arguments.foreach, progress)
    medians = {name: round(statistics.median(taken), 3) for name, taken in times.items()}
    peak_gb = round(_peak_memory(device) / 1e9, 3)
    others = {name: mean_ms(name, shape, device, arguments.rounds) for name in arguments.also}
    where = machine_name(device) if device.type == "cuda" else f"{torch.get_num_threads()} cores of {processor()}"
    parameters = parameters_of(shape)
    found = {
        "parameters": parameters,
        **{f"{name}_ms": medians.get(name) for name in ("adamw_fused", "lamb", "lamb_plain", "lamb_foreach")},
        "peak_memory_gb": peak_gb,
        "lamb_arithmetic": arithmetic["lamb"],
        "lamb_plain_arithmetic": arithmetic["lamb_plain"],
        "threads": torch.get_num_threads(),
        "others_mean_ms": others,
        "machine": where,
    }
    adamw = times["adamw_fused"]
    rows = [(f"{name}, {arithmetic[name]}", medians[name], paired_ratio(own, adamw)) for name, own in times.items()]
    rows += [(f"{name}, mean", mean, Ratio(mean / medians["adamw_fused"])) for name, mean in others.items()]
    head = f"{parameters:,} parameters on {where}; peak memory {peak_gb:.2f} GB"
    lines = table(rows, {"optimizer": "{0[0]}", "ms": "{0[1]:,.1f}", "over AdamW": "{0[2]}"})
    return Found(found, [head, *lines])


def lamb_and_adamw(
    shape: BertShape, device: torch.device, rounds: int, foreach: bool, progress: Progress
) -> tuple[dict[str, list[float]], dict[str, str]]:
    """Return milliseconds and arithmetic of each step; `foreach` adds LAMB in torch's multi-tensor operations."""
    model, draw = _with_gradients(shape, device)
    parameters = list(model.parameters())
    adamw = torch.optim.AdamW(parameters, lr=_RATE, weight_decay=0.01, fused=True)
    lamb = MultiTensorAdam(parameters, OptimizerSettings(name="lamb", learning_rate=_RATE), model.fused_parameters())
    plain, plain_text = plain_lamb(parameters_of(shape), device)
    progress.message("compiling LAMB's passes")
    compiled, text = _lamb_step(device, plain, plain_text, progress)
    steps = {"lamb": compiled, "lamb_plain": plain, **({"lamb_foreach": foreach_step} if foreach else {})}

    def take_lamb(step: Step) -> None:
        lamb.matrix_step = step
        lamb.step(_RATE)

    def timed(take: Callable[[], object], _: int) -> float:
        draw()
        return milliseconds(take, device)

    arms: dict[str, Callable[[], object]] = {"adamw_fused": adamw.step}
    arms |= {name: partial(take_lamb, step) for name, step in steps.items()}
    times = in_turns({name: partial(timed, take) for name, take in arms.items()}, rounds, _WARM_UP, progress)
    return times, {
        "adamw_fused": "torch's fused AdamW", "lamb": text, "lamb_plain": plain_text, "lamb_foreach": "multi-tensor",
    }  # fmt: skip


def mean_ms(name: OptimizerName, shape: BertShape, device: torch.device, rounds: int) -> float:
    """Return the mean milliseconds of an optimizer's step, alone: the states of all might not fit memory."""
    model, draw = _with_gradients(shape, device)
    optimizer, _ = build_optimizer(model, OptimizerSettings(name=name, learning_rate=_RATE))
    times = []
    for _ in range(_WARM_UP + rounds):
        draw()
        times.append(milliseconds(partial(optimizer.step, _RATE), device))
    return round(statistics.mean(times[_WARM_UP:]), 3)


def _with_gradients(shape: BertShape, device: torch.device) -> tuple[Bert, Callable[[], None]]:
    """Return a model, and what draws new gradients for it."""
    model = _meta(shape).to_empty(device=device)
    generator = torch.Generator(device).manual_seed(1)
    for parameter in model.parameters():
        parameter.detach().normal_(0.0, 0.02, generator=generator)
        parameter.grad = torch.empty_like(parameter)

    def draw() -> None:
        for parameter in model.parameters():
            assert parameter.grad is not None
            parameter.grad.normal_(0.0, 1e-3, generator=generator)

    return model, draw


def parameters_of(shape: BertShape) -> int:
    """Return the number of a model's parameters."""
    return sum(parameter.numel() for parameter in _meta(shape).parameters())


def _meta(shape: BertShape) -> Bert:
    with torch.device("meta"):
        return Bert(shape)


def _lamb_step(device: torch.device, plain: Step, plain_text: str, progress: Progress) -> tuple[Step, str]:
    try:
        return FusedStep(device), "passes fused by torch.compile"
    except CompilerMissing as error:
        progress.message(f"LAMB falls back to {plain_text}: {error}")
        return plain, f"{plain_text} ({error})"


def _peak_memory(device: torch.device) -> float:
    """Return the process's largest resident set; on a GPU, its largest allocation."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--system", metavar="SYSTEM", help="parameters of this system's model (default: BERT-Large's)")
    add_device(parser)
    parser.add_argument("--foreach", action="store_true", help="also measure LAMB in torch's multi-tensor operations")
    parser.add_argument(
        "--also", nargs="+", default=[], choices=["muon"], metavar="NAME",
        help="also measure these optimizers, one at a time: muon",
    )  # fmt: skip


add_arguments, run = command(measure, ("--rounds", 7, "timed steps of each"), more=_options)
