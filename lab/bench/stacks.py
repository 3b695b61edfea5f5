"""Describe the stacks of the roofline: software as published results have it, and ours as its kernels are counted."""

from functools import cache
from typing import NamedTuple

import numpy as np

from bertbench.balance.assignment import assign_by_cost
from bertbench.balance.cost import MASKED_SHARE
from bertbench.balance.random_samples import draw_lengths, predictions
from bertbench.common.published_results import PublishedResult, published_results
from bertbench.config import System
from bertbench.loading.bins import Bins
from bertbench.loading.filler import Bin
from bertbench.model.shape import BertShape, FlopTerms
from bertbench.plan.calibrating_results import GPUS_OF_NODE
from bertbench.plan.step_time import HARDWARE, PARAMETERS, Gpu, GpuRates, all_reduce_seconds, gradient_traffic
from lab.bench.stack_time import Stack, mean_length

_FILLER_STEPS = 100  # simulated: the filler's share is known to a tenth of it
_SEED = 1
_LONGEST = 512
_LAYER_WEIGHTS = FlopTerms.of(BertShape()).token / 6  # each takes 6 operations a token, forward and backward


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
        in_fp8=hopper,
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
    """Return our stack on GPUs of one node, which computes, clips, reduces and updates as a system does."""
    precision = system.precision.compute
    filler = graph_filler(samples, gpus)
    sharing = gpus if system.optimizer.sharded else 1
    moved = counted.token_bytes * (1 + filler) + counted.optimizer_bytes / sharing
    if gpus > 1:
        moved += _bytes_of_sum(system, sharing) * PARAMETERS
        moved += _bytes_of_casts(system, sharing) * _LAYER_WEIGHTS
    return Stack(
        name=f"bertbench, {precision}, {gpus} {'GPU' if gpus == 1 else 'GPUs'}",
        gpu=gpu,
        gpus=gpus,
        samples=samples,
        filler=filler,
        bytes=moved,
        launches=0,
        nodes=counted.nodes,
        word="counted",
        in_fp8=precision == "fp8",
        attention="attention_a100" if gpu == "a100" else "attention_hopper",
        exposed_s=_exposed_seconds(system, HARDWARE[gpu], gpus),
    )


def _bytes_of_sum(system: System, sharing: int) -> float:
    """Return the bytes of a parameter that clipping and summing over several ranks move besides what one rank does.

    Clipping before the sum reads the gradient for a norm of its own. A sum in 16 bits reads 4 bytes and writes 2.
    Afterwards the norm and the optimizer read 2 bytes where they would read 4, if the sum is in bf16 and whole on each
    rank; else each rank reads 2 and writes 4 for its slice.
    """
    norm = 4 if system.clip.mode in ("before", "bucket") else 0
    compression = system.communication.compression
    if compression == "none":
        return norm
    if compression == "bf16" and not system.optimizer.sharded:
        return norm + 6 - 2 * 2
    return norm + 6 + 6 / sharing


def _bytes_of_casts(system: System, sharing: int) -> float:
    """Return the bytes of a layer's weight that casting it to 16 bits moves besides what one rank does.

    Sharded weights arrive in fp32. A forward pass reads 4 bytes and writes 2; the optimizer of one rank writes those 2.
    """
    if not system.optimizer.sharded or system.precision.compute == "fp8":
        return 0.0
    return 6 - 2 / sharing


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
    computed = [bins.smallest_for(size) for size in largest]
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
