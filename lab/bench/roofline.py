"""`bertbench lab roofline`: a step's time from its FLOPs, bytes and launches, and the hardware's published rates."""

import argparse
from functools import cache
from typing import Any

from bertbench.cli.arguments import emit
from bertbench.common.published_results import PublishedResult
from bertbench.config import load_system
from bertbench.model.fp8_scaling import FP8_CAPABILITY
from bertbench.model.options import PrecisionName
from bertbench.plan.calibrating_results import GPUS_OF_NODE
from bertbench.plan.step_time import Gpu
from lab.bench.stack_time import EFFICIENCIES, HOST_US, NODE_US, Stack, samples_per_second, step_time, tokens_of
from lab.bench.stacks import CountedStep, best_published, our_stack, published_rate, published_stack
from lab.kernels.absent_gpu import GPUS, check_triton
from lab.kernels.certificate import certificate

_ARCH: dict[Gpu, str] = {"a100": "sm_80", "h100": "sm_90", "h200": "sm_90"}
_SYSTEM: dict[Gpu, str] = {"a100": "dgxa100_n1", "h100": "dgxh200_n1", "h200": "dgxh200_n1"}
"""Shipped systems of one node: how our steps clip, reduce and update follows them."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add no arguments."""


def run(arguments: argparse.Namespace) -> int:
    """Count our step's kernels, compute all steps, and print them. Raises ConfigError without Triton."""
    check_triton()
    published = [(gpu, best_published(gpu)) for gpu in _ARCH]
    steps = [_row(published_stack(gpu, row), row, published_rate(row)) for gpu, row in published]
    for gpu, row in published:
        samples = row.global_batch_size // GPUS_OF_NODE
        for precision in _precisions(gpu):
            counted = _counted(_ARCH[gpu], samples, precision)
            system = load_system(_SYSTEM[gpu], [f"precision.compute={precision}"])
            steps.append(_row(our_stack(gpu, 1, samples, counted, system), row, None))
            steps.append(_row(our_stack(gpu, GPUS_OF_NODE, samples, counted, system), row, published_rate(row)))
    table = {term: efficiency._asdict() for term, efficiency in EFFICIENCIES.items()}
    answer = {"efficiencies": table, "host_us_a_launch": HOST_US, "node_us": NODE_US, "steps": steps}
    emit(arguments.json, answer, *_lines(steps))
    return 0


def _precisions(gpu: Gpu) -> list[PrecisionName]:
    """Return the formats of our products that a GPU has."""
    if GPUS[_ARCH[gpu]].capability >= FP8_CAPABILITY:
        return ["bf16", "fp8"]
    return ["bf16"]


@cache
def _counted(arch: str, samples: int, precision: PrecisionName) -> CountedStep:
    # GPU systems' files leave the residual to `auto`, which is bf16 there
    optimizer, step = certificate([arch], tokens_of(samples), "bf16", ["optimizer", "step"], precision)
    moved = step.megabytes_beside_products - step.megabytes_of_attention - optimizer.megabytes_beside_products
    return CountedStep(1e6 * moved, 1e6 * optimizer.megabytes_beside_products, step.launches)


def _row(stack: Stack, row: PublishedResult, measured: float | None) -> dict[str, Any]:
    time = step_time(stack)
    rate = samples_per_second(stack, row.samples_to_converge)
    return {
        "stack": stack.name,
        "gpu": stack.gpu,
        "gpus": stack.gpus,
        "samples_a_gpu": stack.samples,
        "filler": round(stack.filler, 4),
        "ms": {term: round(value, 2) for term, value in time._asdict().items()},
        "step_ms": round(time.total, 2),
        "limit": time.limit,
        "gigabytes": round(stack.bytes / 1e9, 2),
        "launches": stack.launches,
        "nodes": stack.nodes,
        "bytes_and_launches_are": stack.word,
        "samples_per_s_computed": round(rate, 1),
        "samples_per_s_measured": None if measured is None else round(measured, 1),
    }


def _lines(rows: list[dict[str, Any]]) -> list[str]:
    lines = ["shares of the hardware's rates:"]
    lines += [
        f"  {term:<17}{efficiency.share:>5.0%}  {efficiency.evidence}: {efficiency.reason}"
        for term, efficiency in EFFICIENCIES.items()
    ]
    lines += [
        f"  assumed: a launch outside a CUDA graph takes the host {HOST_US:g} us, a gap inside one {NODE_US:g} us",
        "",
        f"all times are computed {'ms of a step':>66}{'samples/s per GPU':>35}",
        f"{'GPU':<5}{'GPUs':>4}{'batch':>6}{'filler':>7}{'GB':>5} {'':<9}{'launches':>8}{'products':>9}"
        f"{'attention':>10}{'memory':>7}{'sent':>6}{'gaps':>6}{'host':>6}{'step':>7}  "
        f"{'limit':<10}{'computed':>8}{'published':>10}",
    ]
    for row in rows:
        ms = row["ms"]
        published = row["samples_per_s_measured"]
        compared = "" if published is None else f"{published:,.0f}"
        lines.append(
            f"{row['gpu']:<5}{row['gpus']:>4}{row['samples_a_gpu']:>6}{row['filler']:>7.1%}{row['gigabytes']:>5.0f} "
            f"{row['bytes_and_launches_are']:<9}{row['launches']:>8,}{ms['products']:>9.1f}{ms['attention']:>10.1f}"
            f"{ms['memory']:>7.1f}{ms['communication']:>6.1f}{ms['gaps']:>6.1f}{ms['host']:>6.1f}"
            f"{row['step_ms']:>7.1f}  {row['limit']:<10}{row['samples_per_s_computed']:>8,.0f}{compared:>10}  "
            f"{row['stack']}"
        )
    return lines
