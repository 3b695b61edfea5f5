"""`lab optim`: time a step of LAMB and others beside torch's fused AdamW, on BERT's parameters.

Both optimizers update the same weights from the same gradients in turns; medians count. New gradients are drawn before
every step, untimed; clipping's global norm is left out.
"""

import resource
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from bertbench.common.progress import Progress
from bertbench.machine.device import wait
from bertbench.model.bert import Bert
from bertbench.model.shape import BertShape
from bertbench.optim.adam import MultiTensorAdam
from bertbench.optim.build import build_optimizer, plain_lamb
from bertbench.optim.foreach import foreach_step
from bertbench.optim.fused import CompilerMissing, FusedStep
from bertbench.optim.options import OptimizerName, OptimizerSettings
from bertbench.optim.state import Step

_RATE = 1e-4
_WARMUP = 2  # the first steps fault in memory pages


@dataclass(frozen=True)
class OptimizerTimes:
    """Medians in milliseconds a step."""

    parameters: int
    adamw_fused_ms: float
    lamb_ms: float
    lamb_plain_ms: float
    """The same LAMB without a compiler."""
    lamb_foreach_ms: float | None
    """The same LAMB in torch's multi-tensor operations."""
    peak_memory_gb: float
    """The process's largest resident set; on a GPU, its largest allocation."""
    lamb_arithmetic: str
    lamb_plain_arithmetic: str
    threads: int


def measure(shape: BertShape, device: torch.device, rounds: int, foreach: bool, progress: Progress) -> OptimizerTimes:
    """Time `rounds` steps of each optimizer in turn; `foreach` also measures LAMB in multi-tensor operations."""
    model, generator = _with_gradients(shape, device)
    parameters = list(model.parameters())
    adamw = torch.optim.AdamW(parameters, lr=_RATE, weight_decay=0.01, fused=True)
    lamb = MultiTensorAdam(parameters, _settings("lamb"), model.fused_parameters())
    plain, plain_text = plain_lamb(sum(parameter.numel() for parameter in parameters), device)
    step, arithmetic = _lamb_step(device, plain, plain_text, progress)
    steps = {"lamb": step, "lamb_plain": plain} | ({"lamb_foreach": foreach_step} if foreach else {})

    def take_lamb(step: Step) -> None:
        lamb.matrix_step = step
        lamb.step(_RATE)

    arms: dict[str, Callable[[], object]] = {"adamw_fused": adamw.step}
    arms |= {name: partial(take_lamb, step) for name, step in steps.items()}
    times: dict[str, list[float]] = {name: [] for name in arms}
    for number in range(_WARMUP + rounds):
        for name, take in arms.items():
            _draw_gradients(parameters, generator)
            times[name].append(_milliseconds(take, device))
        progress.update(number + 1, _WARMUP + rounds, f"round {number + 1} of {_WARMUP + rounds}")
    medians = {name: round(statistics.median(values[_WARMUP:]), 3) for name, values in times.items()}
    return OptimizerTimes(
        parameters=sum(parameter.numel() for parameter in parameters),
        adamw_fused_ms=medians["adamw_fused"],
        lamb_ms=medians["lamb"],
        lamb_plain_ms=medians["lamb_plain"],
        lamb_foreach_ms=medians.get("lamb_foreach"),
        peak_memory_gb=round(_peak_memory(device) / 1e9, 3),
        lamb_arithmetic=arithmetic,
        lamb_plain_arithmetic=plain_text,
        threads=torch.get_num_threads(),
    )


def measure_others(
    shape: BertShape, device: torch.device, rounds: int, names: Sequence[OptimizerName], progress: Progress
) -> dict[str, float]:
    """Return the mean milliseconds of each optimizer's step, one at a time, because all states might not fit memory."""
    means: dict[str, float] = {}
    for name in names:
        progress.message(f"measuring {name}")
        model, generator = _with_gradients(shape, device)
        optimizer, _ = build_optimizer(model, _settings(name))
        times = []
        for _ in range(_WARMUP + rounds):
            _draw_gradients(list(model.parameters()), generator)
            times.append(_milliseconds(partial(optimizer.step, _RATE), device))
        means[name] = round(statistics.mean(times[_WARMUP:]), 3)
    return means


def _settings(name: OptimizerName) -> OptimizerSettings:
    return OptimizerSettings(name=name, learning_rate=_RATE)


def _with_gradients(shape: BertShape, device: torch.device) -> tuple[Bert, torch.Generator]:
    with torch.device("meta"):
        model = Bert(shape)
    model.to_empty(device=device)
    generator = torch.Generator(device).manual_seed(1)
    for parameter in model.parameters():
        parameter.detach().normal_(0.0, 0.02, generator=generator)
        parameter.grad = torch.empty_like(parameter)
    return model, generator


def _lamb_step(device: torch.device, plain: Step, plain_text: str, progress: Progress) -> tuple[Step, str]:
    progress.message("compiling LAMB's passes")
    try:
        return FusedStep(device), "passes fused by torch.compile"
    except CompilerMissing as error:
        progress.message(f"LAMB falls back to {plain_text}: {error}")
        return plain, f"{plain_text} ({error})"


def _draw_gradients(parameters: list[nn.Parameter], generator: torch.Generator) -> None:
    for parameter in parameters:
        assert parameter.grad is not None
        parameter.grad.normal_(0.0, 1e-3, generator=generator)


def _milliseconds(take: Callable[[], object], device: torch.device) -> float:
    wait(device)
    began = time.perf_counter()
    take()
    wait(device)
    return 1e3 * (time.perf_counter() - began)


def _peak_memory(device: torch.device) -> float:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
