"""Compute the least seconds of an optimizer step in a layout, by formulas and the data sheets' rates.

Products, NVLink and network adapters count at their data sheet's rates, and messages have no latency. Real steps are
slower. The numbers compare layouts, whose arithmetic is the same but for recomputation; they predict no time. They
include neither evaluations nor start-up. parallel_theory.py has the formulas of the bytes.
"""

import math
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from bertbench.checkpoint.tensor_names import pieces
from bertbench.common.errors import ConfigError
from bertbench.config import System
from bertbench.config.layout import bubble_share
from bertbench.config.optimizer import GRADIENT_BYTES, bucket_limits
from bertbench.machine.gpu_peaks import DENSE_TFLOPS, gpu_kind
from bertbench.plan import parallel_theory as theory
from bertbench.plan.step_load import load_of

_BACKWARD_SHARE = 2 / 3  # the backward pass's share of a step's FLOPs; communication can overlap it
_BUCKET_ELEMENTS = 25 * 2**20 // 4  # as in torch's DDP
_RECOMPUTED = 4 / 3  # a second forward pass, which takes half as long as the backward pass


class LinkRates(NamedTuple):
    """Bytes/s of a GPU, one way, by the data sheets of the GPU and of the network in its DGX."""

    nvlink: float
    network: float


LINKS: dict[str, LinkRates] = {
    "A100": LinkRates(nvlink=300e9, network=25e9),  # NVLink 3, InfiniBand HDR 200 Gb/s
    "H100": LinkRates(nvlink=450e9, network=50e9),  # NVLink 4, InfiniBand NDR 400 Gb/s
    "H200": LinkRates(nvlink=450e9, network=50e9),
}
"""By the keys of gpu_peaks.py."""


class GradientTraffic(NamedTuple):
    """How ranks send a gradient."""

    bytes_each: int
    """Bytes for each parameter."""
    collectives: int
    """The number of buckets; each bucket is one all-reduce. The last one can't overlap the backward pass."""


@dataclass(frozen=True)
class StepSeconds:
    """The parts of one step's time."""

    compute: float
    """Computing the model's products, including recomputation."""
    imbalance: float
    """Waiting for the largest part, or computing filler up to its size."""
    stage_wait: float
    """Waiting for other stages of the pipeline."""
    tensor: float
    pipeline: float
    data: float
    """The part of the gradients' reduction that isn't hidden by the backward pass."""

    @property
    def total(self) -> float:
        """Return the sum of the parts."""
        return sum(vars(self).values())


def step_seconds(system: System) -> StepSeconds:
    """Return the least seconds of a step. Raises ConfigError if the rates of the system's GPUs aren't known."""
    kind = _kind_of(system)
    links = LINKS[kind]
    layout, parts = system.layout, system.parts
    load = load_of(system)
    compute = load.flops / (system.world_size * 1e12 * DENSE_TFLOPS[kind]["bf16"])
    if system.parallel.recompute:
        compute *= _RECOMPUTED
    slowest = compute * load.largest.tokens / load.mean_tokens
    tokens = round(parts * load.largest.tokens)
    masked = round(parts * load.largest.masked)
    tensor = 0.0
    if layout.tensor > 1:  # the all-reduces of layers and vocabulary on the first stage
        tensor = theory.tensor_bytes(system, layout.coordinate(0), tokens, masked) / links.nvlink
    bubble = bubble_share(layout.pipeline, parts, layout.virtual_stages)
    return StepSeconds(
        compute=compute,
        imbalance=slowest - compute,
        stage_wait=bubble / (1 - bubble) * (slowest + tensor),
        tensor=tensor,
        pipeline=_pipeline_seconds(system, links, tokens),
        data=_data_seconds(system, links, slowest),
    )


def _kind_of(system: System) -> str:
    """Return the key of a system's GPUs in `LINKS`. Raises ConfigError for others."""
    model = system.hardware.accelerator_model_name
    kind = gpu_kind(model)
    if kind is None or kind not in LINKS:
        raise ConfigError(
            f"{system.name}: hardware.accelerator_model_name is {model!r}, but layouts are compared by the links of "
            f"{', '.join(LINKS)} with NVLink; name one of them: `bertbench estimate {shlex.quote(system.argument)} "
            "--layouts --set hardware.accelerator_model_name=H100`"
        )
    return kind


def _pipeline_seconds(system: System, links: LinkRates, tokens: int) -> float:
    """Return the seconds in which the stage that sends most sends to its neighbours, over the network."""
    layout = system.layout
    if layout.pipeline == 1:
        return 0.0
    first_ranks = range(0, system.world_size, layout.data * layout.tensor)  # the first rank of each stage
    sent = max(theory.pipeline_bytes(system, layout.coordinate(rank), tokens) for rank in first_ranks)
    return sent / links.network


def _data_seconds(system: System, links: LinkRates, compute: float) -> float:
    """Return the seconds that data-parallel ranks wait for gradients; neighbouring ranks are on the same node."""
    layout = system.layout
    shape = system.model.shape()
    parallel = system.parallel
    if layout.data == 1:
        return 0.0
    nodes = max(1, layout.data * layout.tensor // system.launch.ranks_per_node)
    parameters = theory.stage_parameters(shape, layout, layout.coordinate(0))
    if parallel.fully_shard:  # in fp32, one layer at a time
        traffic = GradientTraffic(bytes_each=GRADIENT_BYTES, collectives=shape.layers + 1)
    elif parallel.splits:  # in fp32, the buckets of parallel/gradients.py
        traffic = GradientTraffic(bytes_each=GRADIENT_BYTES, collectives=-(-parameters // _BUCKET_ELEMENTS))
    else:
        traffic = gradient_traffic(system)
    reduction = all_reduce_seconds(links, layout.data, nodes, traffic.bytes_each * parameters)
    if parallel.fully_shard:  # each part gathers twice and scatters once, overlapped with computation
        return max(0.0, 1.5 * reduction * system.parts - compute)
    if parallel.splits:
        return reduction
    return exposed_seconds(reduction, compute, traffic.collectives)


def all_reduce_seconds(links: LinkRates, gpus: int, nodes: int, size: float) -> float:
    """Return the seconds of an all-reduce of `size` bytes, over NVLink inside nodes and an adapter per GPU between.

    Inside a node, a ring reduce-scatter and all-gather move 2 (g - 1) / g of the bytes; between nodes, a ring moves
    2 (n - 1) / n of a GPU's part.
    """
    local = gpus // nodes
    inside = theory.ring(local) * size / links.nvlink
    return inside + theory.ring(nodes) * size / local / links.network


def exposed_seconds(reduction: float, compute: float, collectives: int) -> float:
    """Return the seconds of a reduction that a step's backward pass can't hide: at least those of the last bucket."""
    return max(reduction / collectives, reduction - _BACKWARD_SHARE * compute)


def gradient_traffic(system: System) -> GradientTraffic:
    """Return how a system's ranks send a whole gradient; compression to fewer than 16 bits counts as 16."""
    communication = system.communication
    sizes = [math.prod(piece.shape) for piece in pieces(system.model.shape())]
    return GradientTraffic(
        bytes_each=GRADIENT_BYTES if communication.compression == "none" else 2,
        collectives=communication.buckets or _bucket_count(reversed(sizes), communication.bucket_mb),
    )


def _bucket_count(elements: Iterable[int], bucket_mb: float | None) -> int:
    """Return the number of buckets for gradients with these numbers of elements, in the order of reduction.

    As in DDP, the gradient that reaches a bucket's limit is the last one in it.
    """
    limits = bucket_limits(bucket_mb)
    closed = 0
    filled = 0
    for size in elements:
        filled += GRADIENT_BYTES * size
        limit = limits[min(closed, len(limits) - 1)]
        if filled >= limit:
            closed += 1
            filled = 0
    return closed + 1 if filled else closed
