"""Estimate the seconds of an optimizer step in a layout, by the formulas of parallel_theory.py and hardware data.

The share of peak that products reach is calibrated on BERT-Large (calibrate.py). The estimate ignores that narrow
tensor-parallel products reach a smaller share. It includes neither evaluations nor start-up.
"""

from dataclasses import dataclass

import numpy as np

from bertbench.config import System
from bertbench.config.layout import bubble_share
from bertbench.plan import parallel_theory as theory
from bertbench.plan.calibrate import calibration
from bertbench.plan.step_load import load_of
from bertbench.plan.step_time import (
    HARDWARE,
    Calibration,
    Gpu,
    GpuRates,
    GradientTraffic,
    TimeParts,
    exposed_seconds,
    gradient_traffic,
    reduction_seconds,
)

_COLLECTIVE_S = 20e-6  # assumed: latency of an all-reduce inside a node, or of a send to another node
_BUCKET_ELEMENTS = 25 * 2**20 // 4  # as in torch's DDP
_RECOMPUTED = 4 / 3  # a second forward pass, which takes half as long as the backward pass
_ALL_REDUCES = 4  # in a tensor-parallel layer: two in the forward pass and two in the backward pass
_ALL_REDUCES_OF_EMBEDDINGS = 1
_ALL_REDUCES_OF_HEAD = 3  # highest scores, sums for the loss, gradients of hidden states


@dataclass(frozen=True)
class StepSeconds(TimeParts):
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
    waiting: float
    """Waiting of ranks on many nodes for each other."""


def step_seconds(system: System, gpu: Gpu) -> StepSeconds:
    """Return the seconds of a step on GPUs of a calibrated kind."""
    rates, calibrated = HARDWARE[gpu], calibration(gpu)
    layout, parts = system.layout, system.parts
    load = load_of(system)
    compute = load.flops / (system.world_size * rates.peak_flops * calibrated.compute_share)
    if system.parallel.recompute:
        compute *= _RECOMPUTED
    slowest = compute * load.largest.tokens / load.mean_tokens
    tokens = round(parts * load.largest.tokens)
    masked = round(parts * load.largest.masked)
    tensor = _tensor_seconds(system, rates, tokens, masked)
    bubble = bubble_share(layout.pipeline, parts, layout.virtual_stages)
    return StepSeconds(
        compute=compute,
        imbalance=slowest - compute,
        stage_wait=bubble / (1 - bubble) * (slowest + tensor),
        tensor=tensor,
        pipeline=_pipeline_seconds(system, rates, tokens),
        data=_data_seconds(system, rates, calibrated, slowest),
        waiting=calibrated.waiting_s * float(np.log2(system.hardware.number_of_nodes)),
    )


def utilisation(system: System, gpu: Gpu, seconds: float) -> float:
    """Return model FLOP utilisation: the model's FLOP/s, without padding and recomputation, over the GPUs' peak."""
    return load_of(system).flops / (seconds * system.world_size * HARDWARE[gpu].peak_flops)


def _tensor_seconds(system: System, rates: GpuRates, tokens: int, masked: int) -> float:
    """Return the seconds of the all-reduces of layers and vocabulary on the first stage, on NVLink."""
    layout, parallel = system.layout, system.parallel
    if layout.tensor == 1:
        return 0.0
    collectives = _ALL_REDUCES
    if parallel.recompute:
        collectives += 2  # those of the forward pass run again
    if parallel.sequence:
        collectives *= 2  # each is a gather and a reduce-scatter
    collectives *= system.model.layers // layout.pipeline
    collectives += _ALL_REDUCES_OF_EMBEDDINGS
    if layout.pipeline == 1:
        collectives += _ALL_REDUCES_OF_HEAD
    collectives *= system.parts
    sent = theory.tensor_bytes(system, layout.coordinate(0), tokens, masked)
    return sent / rates.nvlink + collectives * _COLLECTIVE_S


def _pipeline_seconds(system: System, rates: GpuRates, tokens: int) -> float:
    """Return the seconds in which the stage that sends most sends to its neighbours, over the network."""
    layout = system.layout
    if layout.pipeline == 1:
        return 0.0
    first_ranks = range(0, system.world_size, layout.data * layout.tensor)  # the first rank of each stage
    sent = max(theory.pipeline_bytes(system, layout.coordinate(rank), tokens) for rank in first_ranks)
    return sent / rates.network + 2 * system.parts * layout.virtual_stages * _COLLECTIVE_S


def _data_seconds(system: System, rates: GpuRates, calibrated: Calibration, compute: float) -> float:
    """Return the seconds that data-parallel ranks wait for gradients; neighbouring ranks are on the same node."""
    layout = system.layout
    shape = system.model.shape()
    parallel = system.parallel
    if layout.data == 1:
        return 0.0
    nodes = max(1, layout.data * layout.tensor // system.launch.ranks_per_node)
    parameters = theory.stage_parameters(shape, layout, layout.coordinate(0))
    if parallel.fully_shard:  # in fp32, one layer at a time
        traffic = GradientTraffic(bytes_each=4, collectives=shape.layers + 1)
    elif parallel.splits:  # in fp32, the buckets of parallel/gradients.py
        traffic = GradientTraffic(bytes_each=4, collectives=-(-parameters // _BUCKET_ELEMENTS))
    else:
        traffic = gradient_traffic(system)
    reduction = reduction_seconds(rates, layout.data, nodes, calibrated.network_share, traffic, parameters)
    if parallel.fully_shard:  # each part gathers twice and scatters once, overlapped with computation
        return max(0.0, 1.5 * reduction * system.parts - compute)
    if parallel.splits:
        return reduction
    return exposed_seconds(reduction, compute, traffic.collectives)
