"""Compute the seconds of a run: start-up, steps (compute, exposed communication, waiting), evaluations.

Published runs send gradients in 16 bits; a system sends them as its file says. The constants are published figures of
the hardware; `Calibration` holds the three fitted numbers (calibrate.py).
"""

import math
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from bertbench.checkpoint.tensor_names import pieces
from bertbench.common.errors import ConfigError
from bertbench.common.evaluation import mlperf_evaluation_interval
from bertbench.config.closed import EVALUATION_SAMPLES
from bertbench.config.optimizer import GRADIENT_BYTES, bucket_limits
from bertbench.config.system import System
from bertbench.machine.gpu_peaks import DENSE_TFLOPS
from bertbench.plan.calibrating_results import Method
from bertbench.plan.load_efficiency import flops_per_sample, load_efficiency

Gpu = Literal["a100", "h100", "h200"]

PARAMETERS = 336_232_258
"""The parameters of BERT-Large."""
_BACKWARD_SHARE = 2 / 3  # the backward pass's share of a step's FLOPs; communication can overlap it
FORWARD_SHARE = 1 / 3
"""The share of a step's FLOPs."""
START_UP_S = 2.9
"""The seconds that a run spends outside steps, from the published 1,024-GPU open-division logs of v2.0."""


class GpuRates(NamedTuple):
    """Published figures of a GPU and of the network in its DGX."""

    peak_flops: float
    """Dense peak in 16 bits."""
    nvlink: float
    """Bytes/s, one way, that NCCL reaches for a GPU in an all-reduce inside a node."""
    network: float
    """Bytes/s of a GPU's network adapter, one way."""
    latency: float
    """Seconds of one hop between nodes."""


def _peak_16bit(kind: str) -> float:
    return 1e12 * DENSE_TFLOPS[kind]["bf16"]


HARDWARE: dict[Gpu, GpuRates] = {
    "a100": GpuRates(_peak_16bit("A100"), 230e9, 25e9, 5e-6),  # NVLink 3, InfiniBand HDR 200 Gb/s
    "h100": GpuRates(_peak_16bit("H100"), 360e9, 50e9, 5e-6),  # NVLink 4, InfiniBand NDR 400 Gb/s
    "h200": GpuRates(_peak_16bit("H200"), 360e9, 50e9, 5e-6),
}


class Calibration(NamedTuple):
    """Numbers that are fitted to published results, because hardware figures don't determine them."""

    compute_share: float
    """The share of the GPU's peak that a balanced step reaches."""
    network_share: float
    """The share of the network adapters' rate that an all-reduce between nodes reaches."""
    waiting_s: float
    """Seconds of waiting in each step, for each doubling of the number of nodes; 0 with a CUDA graph."""


class GradientTraffic(NamedTuple):
    """How ranks send a gradient."""

    bytes_each: int = 2
    """Bytes for each parameter; published runs send 16 bits."""
    collectives: int = 26
    """The number of buckets. Each bucket is one all-reduce; published runs count as having buckets of 25 MB.

    The last bucket can't overlap the backward pass.
    """


class Workload(NamedTuple):
    """What a run computes and sends, and on which GPUs."""

    gpu: Gpu
    gpus: int
    nodes: int
    global_batch_size: int
    samples: float
    method: Method
    traffic: GradientTraffic = GradientTraffic()


@dataclass(frozen=True)
class TimeParts:
    """Seconds by part."""

    @property
    def total(self) -> float:
        """Return the sum of the parts."""
        return sum(vars(self).values())

    @property
    def limit(self) -> str:
        """Return the name of the largest part."""
        return max(vars(self), key=vars(self).__getitem__)


@dataclass(frozen=True)
class RunSeconds(TimeParts):
    """The parts of a run's time, from run_start to run_stop."""

    start_up: float
    compute: float
    imbalance: float
    communication: float
    waiting: float
    evaluation: float


def all_reduce_seconds(rates: GpuRates, gpus: int, nodes: int, network_share: float, size: float) -> float:
    """Return the seconds of one all-reduce of `size` bytes, over NVLink inside nodes and one rail per GPU between them.

    Inside a node, a ring reduce-scatter and all-gather move 2 (g - 1) / g of the bytes. Between nodes, a ring moves
    2 (n - 1) / n of a GPU's part in 2 (n - 1) hops, and a tree moves twice the part in 2 log2(n) hops. The faster of
    the two counts, because NCCL chooses it.
    """
    local = gpus // nodes
    inside = 2 * (local - 1) / local * size / rates.nvlink
    if nodes == 1:
        return inside
    part = size / local / (rates.network * network_share)
    ring = 2 * (nodes - 1) / nodes * part + 2 * (nodes - 1) * rates.latency
    tree = 2 * part + 2 * math.log2(nodes) * rates.latency
    return inside + min(ring, tree)


def reduction_seconds(
    rates: GpuRates, gpus: int, nodes: int, network_share: float, traffic: GradientTraffic, parameters: int = PARAMETERS
) -> float:
    """Return the seconds of a gradient's reduction, whose all-reduces run one after the other."""
    size = traffic.bytes_each * parameters / traffic.collectives
    return traffic.collectives * all_reduce_seconds(rates, gpus, nodes, network_share, size)


def exposed_seconds(reduction: float, compute: float, collectives: int) -> float:
    """Return the seconds of a reduction that a step's backward pass can't hide: at least those of the last bucket."""
    return max(reduction / collectives, reduction - _BACKWARD_SHARE * compute)


def bucket_count(elements: Iterable[int], bucket_mb: float | None) -> int:
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


def gradient_traffic(system: System) -> GradientTraffic:
    """Return how a system's ranks send BERT-Large's gradient; compression to fewer than 16 bits counts as 16."""
    communication = system.communication
    sizes = [math.prod(piece.shape) for piece in pieces(system.model.shape())]
    return GradientTraffic(
        bytes_each=GRADIENT_BYTES if communication.compression == "none" else 2,
        collectives=communication.buckets or bucket_count(reversed(sizes), communication.bucket_mb),
    )


def run_seconds(work: Workload, calibration: Calibration) -> RunSeconds:
    """Return the parts of a run's time."""
    rates, method = HARDWARE[work.gpu], work.method
    rate = rates.peak_flops * calibration.compute_share / flops_per_sample()  # samples/s on one GPU
    per_gpu = work.global_batch_size / work.gpus
    balanced = per_gpu / rate
    slowest = balanced / load_efficiency(method.batching, work.gpus, max(1, round(per_gpu)))
    reduction = reduction_seconds(rates, work.gpus, work.nodes, calibration.network_share, work.traffic)
    exposed = exposed_seconds(reduction, slowest if method.overlap else 0.0, work.traffic.collectives)
    waiting = 0.0 if method.graphs else calibration.waiting_s * math.log2(work.nodes)
    steps = work.samples / work.global_batch_size
    evaluations = work.samples / mlperf_evaluation_interval(work.global_batch_size)
    return RunSeconds(
        start_up=START_UP_S,
        compute=steps * balanced,
        imbalance=steps * (slowest - balanced),
        communication=steps * exposed,
        waiting=steps * waiting,
        evaluation=evaluations * math.ceil(EVALUATION_SAMPLES / work.gpus) * FORWARD_SHARE / rate,
    )


def gpu_of_card(card: str) -> Gpu:
    """Return the kind of GPU, given a card of `gpu_models` or the name of a kind. Raises ConfigError for others."""
    for kind in HARDWARE:
        if card.split("-", maxsplit=1)[0] == kind:
            return kind
    raise ConfigError(f"--gpu-model {card}: there are forecasts for {', '.join(HARDWARE)} only; name one of them")


def gpu_of(system: System) -> Gpu:
    """Return the kind of a system's GPUs. Raises ConfigError if there are no forecasts for them."""
    model = system.hardware.accelerator_model_name
    for kind in HARDWARE:
        if kind.upper() in model:
            return kind
    raise ConfigError(
        f"{system.name}: hardware.accelerator_model_name is {model!r}, but forecasts need one of {', '.join(HARDWARE)}"
        f"; correct it, or name a card: `bertbench estimate {shlex.quote(system.argument)} --gpu-model h100-sxm`"
    )
