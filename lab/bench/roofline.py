"""`bertbench lab roofline`: a step's time from its FLOPs, bytes and launches, and the hardware's published rates.

Three words mark the evidence: *counted* are launches and bytes of kernels that exist (lab/kernels); *computed* are
floating-point operations, bytes of other stacks, and all times; *measured* are only published results. The shares of
the hardware's rates that kernels reach are assumed (EFFICIENCIES) and were chosen knowing the published results:
agreement with those is a fit, not a test of the model.
"""

import argparse
from functools import cache
from typing import Any, Literal, NamedTuple

import numpy as np

from bertbench.balance.cost import MASKED_SHARE
from bertbench.balance.random_samples import length_shares
from bertbench.cli.arguments import emit
from bertbench.common.published_results import PublishedResult, published_results
from bertbench.config.closed import EVALUATION_SAMPLES
from bertbench.machine.gpu_peaks import DENSE_TFLOPS
from bertbench.model.shape import BertShape, FlopTerms
from bertbench.plan.calibrating_results import GPUS_OF_NODE
from bertbench.plan.load_efficiency import flops_per_sample
from bertbench.plan.step_time import FORWARD_SHARE, HARDWARE, PARAMETERS, START_UP_S, Gpu, all_reduce_seconds
from lab.kernels.absent_gpu import check_triton
from lab.kernels.certificate import certificate

_ARCH: dict[Gpu, str] = {"a100": "sm_80", "h100": "sm_90", "h200": "sm_90"}
_PEAK_FP8 = 1e12 * DENSE_TFLOPS["H100"]["fp8"]
_BANDWIDTH = {"a100": 2.039e12, "h100": 3.35e12, "h200": 4.8e12}  # bytes/s, data sheets of the SXM modules
_EVALUATION_INTERVAL = 150_000  # training samples
_BUCKETS = 26  # gradient buckets: the last one's reduction can't overlap the backward pass


class Efficiency(NamedTuple):
    """An assumed share of a rate, and the reason."""

    share: float
    reason: str


EFFICIENCIES: dict[str, Efficiency] = {
    "products_16bit": Efficiency(0.64, "a large product's 0.80 times 0.8 for BERT's widths, neither measured here"),
    "products_fp8": Efficiency(0.40, "of fp8's peak: a product takes 0.8 of its time in 16 bit, scaling included"),
    "attention_a100": Efficiency(0.40, "FlashAttention-2 with dropout, heads of 64"),
    "attention_hopper": Efficiency(0.20, "the same kernel, written for A100, of Hopper's peak"),
    "attention_cudnn": Efficiency(0.30, "kernels made for Hopper, as the published runs have"),
    "memory": Efficiency(0.85, "of the data sheet's bandwidth, not measured here"),
}
HOST_US = 8.0
"""Assumed time of the host for one launch outside a CUDA graph, Python between pieces included."""


class Stack(NamedTuple):
    """Software on a GPU, and its batch."""

    name: str
    gpu: Gpu
    samples: int
    """Samples of a step on one GPU."""
    bytes: float
    """Bytes of a step besides matrix products and attention."""
    launches: int
    """Launches by the host; 0 in a CUDA graph."""
    word: Literal["counted", "computed"]
    """Evidence of the bytes and the launches."""
    fp8: bool
    attention: str
    gradient_bytes: int
    """Bytes of a parameter in the reduction."""


class StepTime(NamedTuple):
    """Milliseconds of a step by term; the host works in parallel with the GPU."""

    products: float
    attention: float
    memory: float
    communication: float
    host: float

    @property
    def total(self) -> float:
        """Return the sum of the GPU's terms, or the host's time if that is longer."""
        return max(self.products + self.attention + self.memory + self.communication, self.host)

    @property
    def limit(self) -> str:
        """Return the largest term: the host if it takes longer than all of the GPU's."""
        if self.host == self.total:
            return "host"
        return max(self._fields[:-1], key=lambda term: float(getattr(self, term)))


def mean_length() -> float:
    """Return the mean length of Wikipedia's samples, in tokens."""
    shares = length_shares()
    return float(shares @ np.arange(1, len(shares) + 1))


def tokens_of(samples: int) -> int:
    """Return the tokens of a batch, rounded up to a multiple of 256."""
    return round(samples * mean_length() / 256) * 256


def step_time(stack: Stack) -> StepTime:
    """Return the time of a step on each of eight GPUs."""
    hardware = HARDWARE[stack.gpu]
    terms = FlopTerms.of(BertShape())
    share = {term: efficiency.share for term, efficiency in EFFICIENCIES.items()}
    tokens = stack.samples * mean_length()
    encoder = terms.token * tokens
    head = terms.masked * MASKED_SHARE * tokens
    attention = stack.samples * flops_per_sample() - encoder - head
    rate16 = hardware.peak_flops * share["products_16bit"]
    encoder_rate = _PEAK_FP8 * share["products_fp8"] if stack.fp8 else rate16
    reduction = all_reduce_seconds(hardware, GPUS_OF_NODE, 1, 1.0, stack.gradient_bytes * PARAMETERS)
    return StepTime(
        products=1e3 * (encoder / encoder_rate + head / rate16),
        attention=1e3 * attention / (hardware.peak_flops * share[stack.attention]),
        memory=1e3 * stack.bytes / (_BANDWIDTH[stack.gpu] * share["memory"]),
        communication=1e3 * reduction / _BUCKETS,
        host=1e-3 * HOST_US * stack.launches,
    )


def samples_per_second(stack: Stack, samples_to_converge: float) -> float:
    """Return a GPU's samples/s over a whole run, counted like published results: with evaluations and start-up."""
    step_s = step_time(stack).total / 1e3
    per_sample = step_s / stack.samples * (1 + FORWARD_SHARE * EVALUATION_SAMPLES / _EVALUATION_INTERVAL)
    return samples_to_converge / (samples_to_converge * per_sample + START_UP_S * GPUS_OF_NODE)


def published_stack(gpu: Gpu, row: PublishedResult) -> Stack:
    """Return a published run's stack: all 16-bit and fused, fp8 on Hopper, LAMB sharded over the GPUs."""
    hopper = gpu != "a100"
    samples = row.global_batch_size // GPUS_OF_NODE
    return Stack(
        f"as published: {row.submitter} {row.system}", gpu, samples,
        _fused_bytes(samples * mean_length(), hopper), 0 if hopper else 2_000, "computed",
        fp8=hopper, attention="attention_cudnn" if hopper else "attention_a100", gradient_bytes=2,
    )  # fmt: skip


def best_published(gpu: Gpu) -> PublishedResult:
    """Return the result of one node of eight SXM GPUs with the most samples a second.

    A100s count only if named SXM4-80GB and not 500 W: other names hide cards that draw more power.
    """
    form = "A100-SXM4-80GB" if gpu == "a100" else f"{gpu.upper()}-SXM"
    rows = [
        row
        for row in published_results()
        if (row.accelerators, row.nodes) == (GPUS_OF_NODE, 1) and form in row.accelerator
        if "500W" not in row.accelerator
    ]
    return max(rows, key=published_rate)


def our_stack(gpu: Gpu, row: PublishedResult, step_bytes: float, launches: int) -> Stack:
    """Return our stack in bf16 at a published result's batch, with counted bytes besides products and attention."""
    return Stack(
        "bertbench, bf16", gpu, row.global_batch_size // GPUS_OF_NODE, step_bytes, launches, "counted",
        fp8=False, attention="attention_a100" if gpu == "a100" else "attention_hopper", gradient_bytes=4,
    )  # fmt: skip


def published_rate(row: PublishedResult) -> float:
    """Return measured samples/s of a GPU."""
    assert row.accelerators
    return row.samples_to_converge / row.seconds / row.accelerators


def _fused_bytes(tokens: float, fp8: bool) -> float:
    """Return the bytes of a fully fused stack besides products and attention; bytes for each layer tensor [T, x].

    Forward, twice: dropout + add + LayerNorm reads two and writes two tensors of 2 D bytes (its input stays for the
    backward pass) and a mask of D; GELU in the product's epilogue writes 2 F more. Backward, twice: reads gradient,
    input and mask, writes both gradients; GELU's reads and writes 2 F. Gradients of biases read what the products
    wrote: 2 (3 D + D + F + D). In fp8 each product's operands are written once more, plain and transposed, 1 byte each.
    """
    shape = BertShape()
    width, inner = shape.hidden_size, shape.feed_forward_size
    forward = 2 * (4 * 2 * width + width) + 2 * inner
    backward = 2 * (4 * 2 * width + width) + 4 * inner + 2 * (5 * width + inner)
    casts = 2 * (3 * width + inner) + 2 * (5 * width + inner) if fp8 else 0
    scores = 3 * 2 * MASKED_SHARE * shape.vocab_size  # the loss reads, its gradient reads and writes
    a_token = shape.layers * (forward + backward + casts) + scores
    # weights in 16 bit are written by the optimizer: 44 bytes a parameter, an eighth on each GPU
    return a_token * tokens + 44 * PARAMETERS / GPUS_OF_NODE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add no arguments."""


def run(arguments: argparse.Namespace) -> int:
    """Count our step's kernels, compute all steps, and print them. Raises ConfigError without Triton."""
    check_triton()
    published = [(gpu, best_published(gpu)) for gpu in _ARCH]
    stacks = [(published_stack(gpu, row), row) for gpu, row in published]
    for gpu, row in published:
        moved, launches = _counted(_ARCH[gpu], row.global_batch_size // GPUS_OF_NODE)
        stacks.append((our_stack(gpu, row, moved, launches), row))
    steps = [_row(stack, row) for stack, row in stacks]
    assumed = {term: efficiency._asdict() for term, efficiency in EFFICIENCIES.items()}
    emit(arguments.json, {"efficiencies": assumed, "host_us_a_launch": HOST_US, "steps": steps}, *_lines(steps))
    return 0


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
    lines += [f"  {term:<17}{efficiency.share:>5.0%}  {efficiency.reason}" for term, efficiency in EFFICIENCIES.items()]
    lines += [
        f"  a launch outside a CUDA graph takes the host {HOST_US:g} us",
        "",
        f"8 GPUs; all times are computed {'ms of a step':>36}{'samples/s a GPU':>37}",
        f"{'GPU':<5}{'batch':>6}{'GB':>7} {'':<9}{'launches':>8}{'products':>9}{'attention':>10}{'memory':>7}"
        f"{'host':>6}{'step':>7}  {'limit':<10}{'computed':>8}{'published':>10}",
    ]
    for row in rows:
        ms = row["ms"]
        lines.append(
            f"{row['gpu']:<5}{row['samples_a_gpu']:>6}{row['gigabytes']:>7.0f} {row['bytes_and_launches_are']:<9}"
            f"{row['launches']:>8,}{ms['products']:>9.1f}{ms['attention']:>10.1f}{ms['memory']:>7.1f}{ms['host']:>6.1f}"
            f"{row['step_ms']:>7.1f}  {row['limit']:<10}{row['samples_per_s_computed']:>8,.0f}"
            f"{row['samples_per_s_measured']:>10,.0f}  {row['stack']}"
        )
    return lines
