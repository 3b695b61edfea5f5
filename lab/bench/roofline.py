"""`bertbench lab roofline`: a step's time from its FLOPs, bytes and launches, and the hardware's published rates.

Three words mark the evidence: *counted* are launches and bytes of kernels that exist (lab/kernels); *computed* are
floating-point operations, bytes of other stacks, and all times; *measured* are only published results. The shares of
the hardware's rates that kernels reach are assumed (EFFICIENCIES) and were chosen knowing the published results:
agreement with those is a fit, not a test of the model. A share changes only by a measurement on a GPU.
"""

import argparse
from functools import cache
from typing import Any, Literal, NamedTuple

import numpy as np

from bertbench.balance.assignment import assign_by_cost
from bertbench.balance.cost import MASKED_SHARE
from bertbench.balance.random_samples import draw_lengths, length_shares, predictions
from bertbench.cli.arguments import emit
from bertbench.common.published_results import PublishedResult, published_results
from bertbench.config import System, load_system
from bertbench.config.closed import EVALUATION_SAMPLES
from bertbench.loading.bins import Bins
from bertbench.loading.filler import Bin
from bertbench.machine.gpu_peaks import DENSE_TFLOPS
from bertbench.model.shape import BertShape, FlopTerms
from bertbench.plan.calibrating_results import GPUS_OF_NODE
from bertbench.plan.load_efficiency import flops_per_sample
from bertbench.plan.step_time import (
    FORWARD_SHARE,
    HARDWARE,
    PARAMETERS,
    START_UP_S,
    Gpu,
    GpuRates,
    all_reduce_seconds,
    gradient_traffic,
)
from lab.kernels.absent_gpu import check_triton
from lab.kernels.certificate import certificate

_ARCH: dict[Gpu, str] = {"a100": "sm_80", "h100": "sm_90", "h200": "sm_90"}
_SYSTEM: dict[Gpu, str] = {"a100": "dgxa100_n1", "h100": "dgxh200_n1", "h200": "dgxh200_n1"}
"""Shipped systems of one node: how our steps clip, reduce and update follows them."""
_PEAK_FP8 = 1e12 * DENSE_TFLOPS["H100"]["fp8"]
_BANDWIDTH = {"a100": 2.039e12, "h100": 3.35e12, "h200": 4.8e12}  # bytes/s, data sheets of the SXM modules
_EVALUATION_INTERVAL = 150_000  # training samples
_FILLER_STEPS = 100  # simulated: the filler's share is known to a tenth of it
_SEED = 1
_LONGEST = 512


class Efficiency(NamedTuple):
    """A share of a rate that kernels reach."""

    share: float
    reason: str
    evidence: str = "assumed"
    """`assumed`, or the GPU that it was measured on."""


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
NODE_US = 1.2
"""Assumed gap between two kernels of a CUDA graph."""


class Stack(NamedTuple):
    """Software on one or eight GPUs of a node, and its batch."""

    name: str
    gpu: Gpu
    gpus: int
    samples: int
    """Samples of a step on one GPU."""
    filler: float
    """Tokens that are computed for nothing, as a share of the samples' tokens."""
    bytes: float
    """Bytes of a step besides matrix products and attention."""
    launches: int
    """Launches by the host."""
    nodes: int
    """Kernels of a CUDA graph, which the host launches at once."""
    word: Literal["counted", "computed"]
    """Evidence of the bytes, launches and nodes."""
    fp8: bool
    attention: str
    exposed_s: float
    """Seconds of the reduction, and of gathers, that nothing hides."""


class StepTime(NamedTuple):
    """Milliseconds of a step by term; the host works in parallel with the GPU."""

    products: float
    attention: float
    memory: float
    communication: float
    gaps: float
    host: float

    @property
    def total(self) -> float:
        """Return the sum of the GPU's terms, or the host's time if that is longer."""
        return max(self.products + self.attention + self.memory + self.communication + self.gaps, self.host)

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
    """Return the time of a step on each GPU."""
    hardware = HARDWARE[stack.gpu]
    terms = FlopTerms.of(BertShape())
    share = {term: efficiency.share for term, efficiency in EFFICIENCIES.items()}
    tokens = stack.samples * mean_length()
    encoder = terms.token * tokens
    head = terms.masked * MASKED_SHARE * tokens
    attention = stack.samples * flops_per_sample() - encoder - head
    computed = 1 + stack.filler  # filler sequences are short: attention computes next to nothing for them
    rate16 = hardware.peak_flops * share["products_16bit"]
    encoder_rate = _PEAK_FP8 * share["products_fp8"] if stack.fp8 else rate16
    return StepTime(
        products=1e3 * computed * (encoder / encoder_rate + head / rate16),
        attention=1e3 * attention / (hardware.peak_flops * share[stack.attention]),
        memory=1e3 * stack.bytes / (_BANDWIDTH[stack.gpu] * share["memory"]),
        communication=1e3 * stack.exposed_s,
        gaps=1e-3 * NODE_US * stack.nodes,
        host=1e-3 * HOST_US * stack.launches,
    )


def samples_per_second(stack: Stack, samples_to_converge: float) -> float:
    """Return a GPU's samples/s over a whole run, counted like published results: with evaluations and start-up."""
    step_s = step_time(stack).total / 1e3
    per_sample = step_s / stack.samples * (1 + FORWARD_SHARE * EVALUATION_SAMPLES / _EVALUATION_INTERVAL)
    return samples_to_converge / (samples_to_converge * per_sample + START_UP_S * stack.gpus)


def published_stack(gpu: Gpu, row: PublishedResult) -> Stack:
    """Return a published run's stack: all 16-bit and fused, fp8 on Hopper, LAMB sharded over the GPUs.

    It clips before the reduction, so nothing hides that. Packed rows leave 0.1 % of a batch empty. The kernels of its
    CUDA graph aren't known.
    """
    hopper = gpu != "a100"
    samples = row.global_batch_size // GPUS_OF_NODE
    return Stack(
        name=f"as published: {row.submitter} {row.system}",
        gpu=gpu,
        gpus=GPUS_OF_NODE,
        samples=samples,
        filler=0.001,
        bytes=_fused_bytes(samples * mean_length(), hopper),
        launches=0 if hopper else 2_000,
        nodes=0,
        word="computed",
        fp8=hopper,
        attention="attention_cudnn" if hopper else "attention_a100",
        exposed_s=all_reduce_seconds(HARDWARE[gpu], GPUS_OF_NODE, 1, 1.0, 2 * PARAMETERS),
    )


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


class CountedStep(NamedTuple):
    """Our recorded step on one GPU, besides matrix products and attention's kernels."""

    token_bytes: float
    """Bytes that follow from the tokens, and from copying gradients into their buckets."""
    optimizer_bytes: float
    """Bytes of LAMB and of the gradient's norm."""
    nodes: int


def our_stack(gpu: Gpu, gpus: int, samples: int, counted: CountedStep, system: System) -> Stack:
    """Return our stack in bf16 on GPUs of one node, which clips, reduces and updates as a system does."""
    filler = graph_filler(samples, gpus)
    sharing = gpus if system.optimizer.sharded else 1
    moved = counted.token_bytes * (1 + filler) + counted.optimizer_bytes / sharing
    if gpus > 1:
        moved += _bytes_of_sum(system, sharing) * PARAMETERS
    return Stack(
        name=f"bertbench, bf16, {gpus} {'GPU' if gpus == 1 else 'GPUs'}",
        gpu=gpu,
        gpus=gpus,
        samples=samples,
        filler=filler,
        bytes=moved,
        launches=0,
        nodes=counted.nodes,
        word="counted",
        fp8=False,
        attention="attention_a100" if gpu == "a100" else "attention_hopper",
        exposed_s=_exposed_seconds(system, HARDWARE[gpu], gpus),
    )


def _bytes_of_sum(system: System, sharing: int) -> float:
    """Return the bytes of a parameter that clipping and summing over several ranks move besides what one rank does.

    Clipping before the sum reads the gradient for a norm of its own. A sum in 16 bits reads 4 bytes and writes 2.
    Afterwards the norm and the optimizer read 2 bytes where they would read 4, if the sum is in bf16 and whole on each
    rank; else each rank reads 2 and writes 4 for its slice.
    """
    norm = 4 if system.clip.mode == "before" else 0
    compression = system.communication.compression
    if compression == "none":
        return norm
    if compression == "bf16" and not system.optimizer.sharded:
        return norm + 6 - 2 * 2
    return norm + 6 + 6 / sharing


def _exposed_seconds(system: System, hardware: GpuRates, gpus: int) -> float:
    """Return the seconds of communication that a recorded step waits for.

    Clipping before the sum starts it after the backward pass. Else the last bucket alone is waited for, and so is the
    first bucket of weights that a sharded optimizer gathers, in fp32, behind the next forward pass.
    """
    if gpus == 1:
        return 0.0
    traffic = gradient_traffic(system)
    reduction = all_reduce_seconds(hardware, gpus, 1, 1.0, traffic.bytes_each * PARAMETERS)
    gather = 0.0
    if system.optimizer.sharded:  # a reduce-scatter and a gather are each half an all-reduce of their bytes
        reduction /= 2
        gather = all_reduce_seconds(hardware, gpus, 1, 1.0, 4 * PARAMETERS) / 2
    exposed = reduction if system.clip.mode == "before" else reduction / traffic.collectives
    return exposed + gather / traffic.collectives


@cache
def graph_filler(samples: int, gpus: int) -> float:
    """Simulate the tokens that recorded steps compute beyond those of the samples, as a share; imbalance included."""
    real: list[float] = []
    largest: list[Bin] = []
    for step in range(_FILLER_STEPS):
        lengths = draw_lengths(samples * gpus, _SEED + step)
        (rank_S,) = assign_by_cost(lengths[None], gpus, np.arange(_LONGEST + 1, dtype=np.float64), equal_counts=True)
        tokens_R = np.bincount(rank_S, lengths, gpus)
        masked_R = np.bincount(rank_S, predictions(lengths), gpus)
        real.append(float(tokens_R.mean()))
        largest.append(Bin(int(tokens_R.max()), int(masked_R.max()), samples))
    bins = Bins(largest, _LONGEST)
    computed = [bins.smallest_for(size) or size for size in largest]
    return sum(size.tokens for size in computed) / sum(real) - 1


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
    steps = [_row(published_stack(gpu, row), row, published_rate(row)) for gpu, row in published]
    for gpu, row in published:
        samples = row.global_batch_size // GPUS_OF_NODE
        counted = _counted(_ARCH[gpu], samples)
        system = load_system(_SYSTEM[gpu])
        steps.append(_row(our_stack(gpu, 1, samples, counted, system), row, None))
        steps.append(_row(our_stack(gpu, GPUS_OF_NODE, samples, counted, system), row, published_rate(row)))
    table = {term: efficiency._asdict() for term, efficiency in EFFICIENCIES.items()}
    answer = {"efficiencies": table, "host_us_a_launch": HOST_US, "node_us": NODE_US, "steps": steps}
    emit(arguments.json, answer, *_lines(steps))
    return 0


@cache
def _counted(arch: str, samples: int) -> CountedStep:
    # GPU systems' files leave the residual to `auto`, which is bf16 there
    optimizer, step = certificate([arch], tokens_of(samples), "bf16", ["optimizer", "step"], "triton")
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
