"""`bertbench predict --from-kernels`: compute a step's time by terms, for published stacks and for ours."""

from functools import cache
from typing import Any

from bertbench.common.published_results import PublishedResult
from bertbench.model.shape import BertShape
from bertbench.plan.calibrating_results import GPUS_OF_NODE
from bertbench.plan.kernels.absent_gpu import check_triton
from bertbench.plan.kernels.certificate import certificate
from bertbench.plan.roofline import (
    EFFICIENCIES,
    HOST_US,
    Stack,
    best_published,
    our_stack,
    published_rate,
    published_stack,
    samples_per_second,
    step_time,
    tokens_of,
)
from bertbench.plan.step_time import Gpu

_ARCH: dict[Gpu, str] = {"a100": "sm_80", "h100": "sm_90", "h200": "sm_90"}


def roofline() -> tuple[dict[str, Any], list[str]]:
    """Count our step's kernels and compute all steps; return them as JSON and as lines.

    Raises ConfigError without Triton.
    """
    check_triton()
    published = [(gpu, best_published(gpu)) for gpu in _ARCH]
    stacks = [(published_stack(gpu, row), row) for gpu, row in published]
    for gpu, row in published:
        moved, launches = _counted(_ARCH[gpu], row.global_batch_size // GPUS_OF_NODE)
        stacks.append((our_stack(gpu, row, moved, launches), row))
    steps = [_row(stack, row) for stack, row in stacks]
    assumed = {term: efficiency._asdict() for term, efficiency in EFFICIENCIES.items()}
    return {"efficiencies": assumed, "host_us_a_launch": HOST_US, "steps": steps}, _lines(steps)


@cache
def _counted(arch: str, samples: int) -> tuple[float, int]:
    """Return our step's bytes besides products and attention, and its launches."""
    attention, step = certificate([arch], tokens_of(samples), wanted=["attention", "step"], optimizer="triton")
    return 1e6 * (step.megabytes_beside_products - BertShape().layers * attention.megabytes), step.launches


def _row(stack: Stack, row: PublishedResult) -> dict[str, Any]:
    time = step_time(stack)
    rate, published = samples_per_second(stack, row.samples_to_converge), published_rate(row)
    return {
        "stack": stack.name,
        "gpu": stack.gpu,
        "samples_a_gpu": stack.samples,
        "ms": {term: round(value, 2) for term, value in time._asdict().items()},
        "step_ms": round(time.total, 2),
        "limit": time.limit,
        "gigabytes": round(stack.bytes / 1e9, 2),
        "launches": stack.launches,
        "bytes_and_launches_are": stack.word,
        "samples_per_s_computed": round(rate, 1),
        "samples_per_s_measured": round(published, 1),
    }


def _lines(rows: list[dict[str, Any]]) -> list[str]:
    lines = ["assumed shares of the hardware's rates:"]
    lines += [f"  {term:<17}{one.share:>5.0%}  {one.reason}" for term, one in EFFICIENCIES.items()]
    lines += [
        f"  a launch outside a CUDA graph takes the host {HOST_US:g} us",
        "",
        f"8 GPUs; all times are computed {'ms of a step':>36}{'samples/s a GPU':>37}",
        f"{'GPU':<5}{'batch':>6}{'GB':>7} {'':<9}{'launches':>8}{'products':>9}{'attention':>10}{'memory':>7}"
        f"{'host':>6}{'step':>7}  {'limit':<10}{'computed':>8}{'published':>10}",
    ]
    for one in rows:
        ms = one["ms"]
        lines.append(
            f"{one['gpu']:<5}{one['samples_a_gpu']:>6}{one['gigabytes']:>7.0f} {one['bytes_and_launches_are']:<9}"
            f"{one['launches']:>8,}{ms['products']:>9.1f}{ms['attention']:>10.1f}{ms['memory']:>7.1f}{ms['host']:>6.1f}"
            f"{one['step_ms']:>7.1f}  {one['limit']:<10}{one['samples_per_s_computed']:>8,.0f}"
            f"{one['samples_per_s_measured']:>10,.0f}  {one['stack']}"
        )
    return lines
