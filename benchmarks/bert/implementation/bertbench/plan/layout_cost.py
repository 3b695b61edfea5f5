"""Compute by formulas what a layout costs: the bytes that a rank sends, and the least seconds of an optimizer step.

The formulas of bytes are those of Narayanan et al. 2021 (arXiv 2104.04473). Tokens T replace their batch times sequence
length, b s, because only a pipeline's microbatches are padded here. All byte counts are those that one rank sends in a
step.

Products, NVLink and network adapters count at their data sheet's rates, and messages have no latency. Real steps are
slower, most of all with a high `tensor`, which makes products small. The seconds compare layouts, whose arithmetic is
the same but for recomputation; they predict no time. They include neither evaluations nor start-up.
"""

import math
import shlex
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import nn

from bertbench.checkpoint.tensor_names import pieces
from bertbench.common.errors import ConfigError
from bertbench.config import System
from bertbench.config.layout import Coordinate, bubble_share
from bertbench.config.optimizer import GRADIENT_BYTES
from bertbench.gradients.buckets import bucket_table
from bertbench.machine.gpu_peaks import DENSE_TFLOPS, gpu_kind
from bertbench.plan.memory import stage_parameters, word_rows
from bertbench.plan.step_load import load_of

_BACKWARD_SHARE = 2 / 3  # the backward pass's share of a step's FLOPs; communication can overlap it
_RECOMPUTED = 4 / 3  # a second forward pass, which takes half as long as the backward pass


def ring(ranks: int) -> float:
    """Return the bytes that a rank sends in a ring all-reduce, divided by the bytes of its tensor: 2 (g - 1) / g."""
    return 2 * (ranks - 1) / ranks


def sent_bytes(system: System, place: Coordinate, tokens: int, masked: int) -> dict[str, int]:
    """Return, by dimension, the bytes that a rank sends in a step of `tokens` tokens, with `masked` masked ones."""
    shape, layout = system.model.shape(), system.layout
    if system.parallel.fully_shard:
        # each part gathers the weights twice and scatters gradients: 3 (d - 1) / d, rows rounded up to d
        rows = sum(-(-piece.shape[0] // layout.data) * math.prod(piece.shape[1:]) for piece in pieces(shape))
        return {"data": 3 * system.parts * GRADIENT_BYTES * rows * (layout.data - 1)}
    has_tied_words = layout.pipeline > 1 and place.pipeline in (0, layout.pipeline - 1)
    sent = {
        "tensor": tensor_bytes(system, place, tokens, masked),
        "pipeline": pipeline_bytes(system, place, tokens),
        # the gradient of this rank's part (section 3.3.1)
        "data": round(GRADIENT_BYTES * stage_parameters(shape, layout, place) * ring(layout.data)),
        # the gradient of this rank's word embeddings, summed over the first and the last stage
        "tied words": GRADIENT_BYTES * word_rows(shape, layout, place) * shape.hidden_size if has_tied_words else 0,
    }
    return {dimension: size for dimension, size in sent.items() if size}


def tensor_bytes(system: System, place: Coordinate, tokens: int, masked: int) -> int:
    """Return the bytes that a tensor-parallel rank sends: 8 T h (t - 1) / t numbers for each layer (section 3.2).

    These are two all-reduces in the forward pass and two in the backward pass. Recomputation repeats those of the
    forward pass. With sequence parallelism, each is a gather and a reduce-scatter (arXiv 2205.05198, section 4.2.2),
    which together send as much. The embeddings' gradients and the heads' inputs are then gathered too, and the
    gradients of the LayerNorms are summed. In addition to the layers, there are the sums of a split vocabulary,
    `vocabulary_bytes`.
    """
    return _layers_bytes(system, place, tokens) + vocabulary_bytes(system, place, tokens, masked)


def vocabulary_bytes(system: System, place: Coordinate, tokens: int, masked: int) -> int:
    """Return the bytes that a rank sends because ranks share the rows of the vocabulary, all of them in fp32.

    On the first stage, the tokens' embeddings are summed: T h numbers. On the last stage, two things are summed for
    each masked token: the gradient of its hidden state (h numbers), and three numbers of its loss (highest score, sum
    of exponentials, the label's score).
    """
    layout, hidden = system.layout, system.model.hidden_size
    numbers = 0
    if place.pipeline == 0:
        numbers += tokens * hidden
    if place.pipeline == layout.pipeline - 1:
        numbers += masked * (hidden + 3)
    return round(GRADIENT_BYTES * numbers * ring(layout.tensor))


def _layers_bytes(system: System, place: Coordinate, tokens: int) -> int:
    """Return the bytes that a tensor-parallel rank sends for layers, and to share tokens between layers."""
    layout = system.layout
    layers, numbers = system.model.layers // layout.pipeline, tokens * system.model.hidden_size
    forward_passes = 2 if system.parallel.recompute else 1
    if not layout.sequence:
        width = 2 * _forward_bytes(system) * forward_passes + 2 * GRADIENT_BYTES
        return round(layers * numbers * width * ring(layout.tensor))
    # forward, hidden states are gathered in the format of LayerNorm's output, and products are scattered in their own;
    # backward it is the other way round
    width = 2 * (_forward_bytes(system) + GRADIENT_BYTES)
    gathered = layers * numbers * width * (forward_passes + 1)
    if place.pipeline == 0:
        gathered += numbers * GRADIENT_BYTES
    if place.pipeline == layout.pipeline - 1:
        gathered += numbers * GRADIENT_BYTES
    norms = 4 * layers * system.model.hidden_size * GRADIENT_BYTES
    return round(gathered * ring(layout.tensor) / 2 + norms * ring(layout.tensor))


def pipeline_bytes(system: System, place: Coordinate, tokens: int) -> int:
    """Return the bytes that a stage sends for `tokens` tokens with fillers: T h numbers per boundary (section 3.2).

    A stage sends to the next stage in the forward pass, and to the previous one in the backward pass. Ranks that share
    tokens send their share.
    """
    layout = system.layout
    sends = 0
    for stage in range(place.pipeline, layout.stages, layout.pipeline):
        if stage < layout.stages - 1:
            sends += 1  # forward
        if stage > 0:
            sends += 1  # backward
    return sends * tokens // layout.token_shares * system.model.hidden_size * _forward_bytes(system)


def _forward_bytes(system: System) -> int:
    """Return the bytes of a number that ranks sum in the forward pass, or that stages send.

    Gradients of such sums are in fp32.
    """
    return 2 if system.precision.compute == "bf16" else 4


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
    slowest = compute * load.largest_simulated_part.tokens / load.mean_tokens
    tokens = round(parts * load.largest_simulated_part.tokens)
    masked = round(parts * load.largest_simulated_part.masked)
    tensor = 0.0
    if layout.tensor > 1:  # the all-reduces of layers and vocabulary on the first stage
        tensor = tensor_bytes(system, layout.coordinate(0), tokens, masked) / links.nvlink
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
            f"{', '.join(LINKS)} with NVLink; name one of them: `bertbench estimate "
            f"{shlex.quote(system.argument)} --layouts --set hardware.accelerator_model_name=H100`"
        )
    return kind


def _pipeline_seconds(system: System, links: LinkRates, tokens: int) -> float:
    """Return the seconds in which the stage that sends most sends to its neighbours, over the network."""
    layout = system.layout
    if layout.pipeline == 1:
        return 0.0
    first_ranks = range(0, system.world_size, layout.data * layout.tensor)  # the first rank of each stage
    sent = max(pipeline_bytes(system, layout.coordinate(rank), tokens) for rank in first_ranks)
    return sent / links.network


def _data_seconds(system: System, links: LinkRates, compute: float) -> float:
    """Return the seconds that data-parallel ranks wait for gradients; neighbouring ranks are on the same node."""
    layout = system.layout
    shape = system.model.shape()
    parallel = system.parallel
    if layout.data == 1:
        return 0.0
    nodes = max(1, layout.data * layout.tensor // system.launch.ranks_per_node)
    parameters = stage_parameters(shape, layout, layout.coordinate(0))
    if not parallel.splits:
        reduction = all_reduce_seconds(links, layout.data, nodes, sent_bytes_each(system) * parameters)
        return exposed_seconds(reduction, compute, collectives(system))
    reduction = all_reduce_seconds(links, layout.data, nodes, GRADIENT_BYTES * parameters)
    if parallel.fully_shard:  # each part gathers twice and scatters once, overlapped with computation
        return max(0.0, 1.5 * reduction * system.parts - compute)
    return reduction


def all_reduce_seconds(links: LinkRates, gpus: int, nodes: int, size: float) -> float:
    """Return the seconds of an all-reduce of `size` bytes, over NVLink inside nodes and an adapter per GPU between.

    Inside a node, a ring reduce-scatter and all-gather move 2 (g - 1) / g of the bytes; between nodes, a ring moves
    2 (n - 1) / n of a GPU's part.
    """
    local = gpus // nodes
    inside = ring(local) * size / links.nvlink
    return inside + ring(nodes) * size / local / links.network


def exposed_seconds(reduction: float, compute: float, buckets: int) -> float:
    """Return the seconds of a reduction that a step's backward pass can't hide: at least those of the last bucket."""
    return max(reduction / buckets, reduction - _BACKWARD_SHARE * compute)


def sent_bytes_each(system: System) -> int:
    """Return the bytes of a gradient's number, as ranks with whole models send it."""
    return GRADIENT_BYTES if system.communication.compression == "none" else 2


def collectives(system: System) -> int:
    """Return the number of all-reduces by which ranks with whole models sum a gradient: one for each bucket."""
    communication = system.communication
    with torch.device("meta"):
        parameters = [nn.Parameter(torch.empty(piece.shape)) for piece in pieces(system.model.shape())]
    return len(bucket_table(parameters[::-1], communication.bucket_mb, communication.buckets))
