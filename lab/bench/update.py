"""`lab update`: time a step of LAMB and of torch's fused AdamW on BERT's parameters.

All optimizers update the same weights with the same gradients. Medians count. New gradients are drawn before every
step, which isn't timed. The global norm for clipping isn't included.
"""

import argparse
import statistics
from collections.abc import Callable
from functools import partial

import torch

from bertbench.common.progress import Progress
from bertbench.common.tables import table_lines
from bertbench.config.optimizer import Implementation, OptimizerSettings
from bertbench.model.bert import Bert
from bertbench.model.shape import BertShape
from bertbench.optim.build_optimizer import build_optimizer
from lab.bench.harness import (
    BenchResult,
    add_device,
    alternate,
    command,
    machine_name,
    milliseconds,
    option,
    paired_ratio,
)
from lab.bench.peak import peak_bytes

_RATE = 1e-4
_WARM_UP = 2  # the first steps fault in memory pages


def measure(arguments: argparse.Namespace, progress: Progress) -> BenchResult:
    """Time the optimizers that the options select."""
    device = torch.device(arguments.device)
    with torch.device("meta"):
        model = Bert(BertShape())
    parameters = sum(parameter.numel() for parameter in model.parameters())
    times, arithmetic = step_times(model.to_empty(device=device), arguments, progress)
    peak_gb = round(peak_bytes(device) / 1e9, 3)
    medians = {name: round(statistics.median(taken), 3) for name, taken in times.items()}
    where = machine_name(device)
    content = {
        "parameters": parameters,
        **{f"{name}_ms": taken for name, taken in medians.items()},
        "arithmetic": arithmetic,
        "peak_memory_gb": peak_gb,
        "machine": where,
    }
    rows = [
        (f"{name}, {arithmetic[name]}", medians[name], paired_ratio(taken, times["adamw_fused"]))
        for name, taken in times.items()
    ]
    head = f"{parameters:,} parameters on {where}; peak memory {peak_gb:.2f} GB"
    lines = table_lines(rows, {"optimizer": "{0[0]}", "ms": "{0[1]:,.1f}", "time / AdamW's": "{0[2]}"})
    return BenchResult(content, [head, *lines])


def step_times(
    model: Bert, arguments: argparse.Namespace, progress: Progress
) -> tuple[dict[str, list[float]], dict[str, str]]:
    """Return, for each optimizer including those of --also, the milliseconds of each round, and its arithmetic."""
    parameters = list(model.parameters())
    device = parameters[0].device
    generator = torch.Generator(device).manual_seed(1)
    for parameter in parameters:
        parameter.detach().normal_(0.0, 0.02, generator=generator)
    adamw = torch.optim.AdamW(parameters, lr=_RATE, weight_decay=0.01, fused=True)
    # as a run would use it on this device
    impl: Implementation = "triton" if device.type == "cuda" else "torch"
    lamb, text = build_optimizer(model, OptimizerSettings(name="lamb", learning_rate=_RATE, impl=impl))

    def timed(take: Callable[[], object], _: int) -> float:
        for parameter in parameters:
            parameter.grad = torch.empty_like(parameter).normal_(0.0, 1e-3, generator=generator)
        return milliseconds(take, device)

    steps: dict[str, Callable[[], object]] = {"adamw_fused": adamw.step, "lamb": partial(lamb.step, _RATE)}
    if "muon" in arguments.also:
        muon, _ = build_optimizer(model, OptimizerSettings(name="muon", learning_rate=_RATE))
        steps["muon"] = partial(muon.step, _RATE)
    timed_steps = {name: partial(timed, take) for name, take in steps.items()}
    times = alternate(timed_steps, arguments.rounds, _WARM_UP, progress)
    texts = {"adamw_fused": "torch's fused AdamW", "lamb": text}
    return times, texts | dict.fromkeys(arguments.also, "multi-tensor")


add_arguments, run = command(
    measure, ("--rounds", 7, "timed steps of each optimizer"),
    more=[
        add_device, option("--also", nargs="+", default=[], choices=["muon"], metavar="NAME", help="also measure muon"),
    ],
)  # fmt: skip
