"""Estimate the seconds of a layout's optimizer step, by the formulas of parallel_theory.py and hardware figures.

The share of peak that products reach is calibrated on BERT-Large (calibrate.py). Left out: the lower share of narrow
tensor-parallel products, evaluations and start-up.
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

_COLLECTIVE_S = 20e-6  # assumed: start of an all-reduce inside a node, or of a send to another node
_BUCKET_ELEMENTS = 25 * 2**20 // 4  # as torch's DDP fills them
_RECOMPUTED = 4 / 3  # a second forward pass, half as long as the backward pass
_ALL_REDUCES = 4  # of a tensor-parallel layer: two forward and two backward
_ALL_REDUCES_OF_EMBEDDINGS = 1
_ALL_REDUCES_OF_HEAD = 3  # highest scores, sums for the loss, gradients of hidden states


@dataclass(frozen=True)
class StepSeconds(TimeParts):
    """Where the time of one step goes."""

    compute: float
    """The model's products, and recomputation."""
    imbalance: float
    """Waiting for the largest part, or computing filler up to it."""
    stage_wait: float
    """Waiting for other stages of the pipeline."""
    tensor: float
    pipeline: float
    data: float
    """Seconds of the gradients' reduction that the backward pass doesn't hide."""
    waiting: float
    """Waiting between ranks of many nodes."""


def step_seconds(system: System, gpu: Gpu) -> StepSeconds:
    """Return a step's seconds on GPUs of a calibrated kind."""
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
    """Return model FLOP utilisation: the model's FLOPs, without padding and recomputation, over the GPUs' peak."""
    return load_of(system).flops / (seconds * system.world_size * HARDWARE[gpu].peak_flops)


def _tensor_seconds(system: System, rates: GpuRates, tokens: int, masked: int) -> float:
    """Return the seconds of the all-reduces of layers and vocabulary on the first stage, on NVLink."""
    layout, parallel = system.layout, system.parallel
    if layout.tensor == 1:
        return 0.0
    collectives = _ALL_REDUCES
    if parallel.recompute:
        collectives += 2  # the forward ones again
    if parallel.sequence:
        collectives *= 2  # a gather and a reduce-scatter for each
    collectives *= system.model.layers // layout.pipeline
    collectives += _ALL_REDUCES_OF_EMBEDDINGS
    if layout.pipeline == 1:
        collectives += _ALL_REDUCES_OF_HEAD
    collectives *= system.parts
    sent = theory.tensor_bytes(system, layout.coordinate(0), tokens, masked)
    return sent / rates.nvlink + collectives * _COLLECTIVE_S


def _pipeline_seconds(system: System, rates: GpuRates, tokens: int) -> float:
    """Return the seconds of the stage that sends most to its neighbours, over the network."""
    layout = system.layout
    if layout.pipeline == 1:
        return 0.0
    first_ranks = range(0, system.world_size, layout.data * layout.tensor)  # of each stage
    sent = max(theory.pipeline_bytes(system, layout.coordinate(rank), tokens) for rank in first_ranks)
    return sent / rates.network + 2 * system.parts * layout.virtual_stages * _COLLECTIVE_S


def _data_seconds(system: System, rates: GpuRates, calibrated: Calibration, compute: float) -> float:
    """Return the seconds that data-parallel ranks wait for gradients; ranks of a node are neighbours."""
    layout = system.layout
    shape = system.model.shape()
    parallel = system.parallel
    if layout.data == 1:
        return 0.0
    nodes = max(1, layout.data * layout.tensor // system.launch.ranks_per_node)
    parameters = theory.stage_parameters(shape, layout, layout.coordinate(0))
    if parallel.fully_shard:  # in fp32, a layer at once
        traffic = GradientTraffic(bytes_each=4, collectives=shape.layers + 1)
    elif parallel.splits:  # in fp32, the buckets of parallel/gradients.py
        traffic = GradientTraffic(bytes_each=4, collectives=-(-parameters // _BUCKET_ELEMENTS))
    else:
        traffic = gradient_traffic(system)
    reduction = reduction_seconds(rates, layout.data, nodes, calibrated.network_share, traffic, parameters)
    if parallel.fully_shard:  # every part gathers twice and scatters once, overlapped with computing
        return max(0.0, 1.5 * reduction * system.parts - compute)
    if parallel.splits:
        return reduction
    return exposed_seconds(reduction, compute, traffic.collectives)
