"""Estimate the seconds of a layout's optimizer step, by the formulas of `parallel.theory` and hardware figures.

The share of peak that products reach is calibrated on BERT-Large (calibrate.py). Left out: the lower share of narrow
tensor-parallel products, evaluations and start-up.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import NamedTuple

import numpy as np

from bertbench.balance.deal import by_cost
from bertbench.balance.lengths import draw_lengths, predictions
from bertbench.config import System
from bertbench.config.layout import Parallel
from bertbench.config.layout_rules import layout_fits
from bertbench.model.flops import training_flops
from bertbench.plan import parallel_theory as theory
from bertbench.plan.calibrate import calibration
from bertbench.plan.step_time import (
    HARDWARE,
    Calibration,
    Gpu,
    Hardware,
    Parts,
    Sent,
    exposed_seconds,
    reduction_seconds,
    sent_by,
)

_STEPS = 20  # simulated steps
_SEED = 1
_EITHER = (False, True)
_COLLECTIVE_S = 20e-6  # assumed: start of an all-reduce inside a node, or of a send to another node
_BUCKET_ELEMENTS = 25 * 2**20 // 4  # as torch's DDP fills them
_RECOMPUTED = 4 / 3  # a second forward pass, half as long as the backward pass


@dataclass(frozen=True)
class StepSeconds(Parts):
    """Where the time of one step goes."""

    compute: float
    """The model's products, and recomputation."""
    imbalance: float
    """Waiting for the largest part, or computing filler up to it."""
    bubble: float
    tensor: float
    pipeline: float
    data: float
    """Seconds of the gradients' reduction that the backward pass doesn't hide."""
    waiting: float
    """Waiting between ranks of many nodes."""


class Load(NamedTuple):
    """Tokens of a global batch's parts, and their pairs within sequences."""

    mean_tokens: float
    most_tokens: float
    most_pairs: float
    flops: float
    """Tokens of the whole step."""


def step_seconds(system: System, gpu: Gpu) -> StepSeconds:
    """Return a step's seconds on GPUs of a calibrated kind."""
    hardware, calibrated = HARDWARE[gpu], calibration(gpu)
    parallel, layout, parts = system.parallel, system.layout, system.parts
    load = load_of(system)
    rate = system.world_size * hardware.peak_flops * calibrated.compute_share
    compute = load.flops / rate * (_RECOMPUTED if parallel.recompute else 1.0)
    slowest = compute * load.most_tokens / load.mean_tokens
    tokens = round(parts * load.most_tokens)
    tensor = pipeline = 0.0
    if layout.tensor > 1:
        calls = parts * system.model.layers // layout.pipeline * (6 if parallel.recompute else 4)
        calls *= 2 if parallel.sequence else 1
        sent = theory.tensor_bytes(system, layout.coordinate(0), tokens)
        tensor = sent / hardware.nvlink + calls * _COLLECTIVE_S
    if layout.pipeline > 1:
        sent = max(
            theory.pipeline_bytes(system, layout.coordinate(rank), tokens)
            for rank in range(0, system.world_size, layout.data * layout.tensor)
        )
        pipeline = sent / hardware.network + 2 * parts * layout.virtual_stages * _COLLECTIVE_S
    return StepSeconds(
        compute=compute,
        imbalance=slowest - compute,
        bubble=theory.bubble(layout.pipeline, parts, layout.virtual_stages) * (slowest + tensor),
        tensor=tensor,
        pipeline=pipeline,
        data=_data_seconds(system, hardware, calibrated, slowest),
        waiting=calibrated.waiting_s * float(np.log2(system.hardware.number_of_nodes)),
    )


def utilisation(system: System, gpu: Gpu, seconds: float) -> float:
    """Return model FLOP utilisation: the model's FLOPs, without padding and recomputation, over the GPUs' peak."""
    return load_of(system).flops / (seconds * system.world_size * HARDWARE[gpu].peak_flops)


def candidates(system: System) -> Iterator[System]:
    """Yield the same work in every possible layout: sizes and parts in powers of two.

    A split model clips after the all-reduce, since no rank has a whole gradient before it, doesn't compress, and
    shards its optimizer by parallel.fully_shard alone.
    """
    split = {
        "clip": system.clip.model_copy(update={"mode": "after"}),
        "communication": system.communication.model_copy(
            update={"compression": "none", "hierarchical": False, "bucket_mb": None}
        ),
        "optimizer": system.optimizer.model_copy(update={"sharded": False}),
    }
    data = system.data.model_copy(update={"global_batch_size": system.global_batch_size, "local_batch": None})
    powers = [2**power for power in range(system.world_size.bit_length())]
    for tensor, pipeline, parts in product(powers, powers, powers):
        held = system.world_size // (tensor * pipeline)
        if not held or system.global_batch_size % (held * parts):
            continue
        accumulating = data.model_copy(update={"gradient_accumulation_steps": parts if pipeline == 1 else 1})
        for recompute, sequence, fully_shard, virtual_stages in product(_EITHER, _EITHER, _EITHER, (1, 2, 4)):
            parallel = Parallel(
                tensor=tensor, sequence=sequence, pipeline=pipeline, microbatches=1 if pipeline == 1 else parts,
                virtual_stages=virtual_stages, schedule="1f1b" if virtual_stages == 1 else "interleaved",
                recompute=recompute, fully_shard=fully_shard,
            )  # fmt: skip
            changes = {"parallel": parallel, "data": accumulating, **(split if parallel.splits else {})}
            found = system.model_copy(update=changes)
            if layout_fits(found):
                yield found


def load_of(system: System) -> Load:
    """Simulate the load of a system's parts on Wikipedia's lengths, cut to the model's positions."""
    lengths = np.minimum(draw_lengths(system.global_batch_size, _SEED), system.model.max_positions)
    flops = training_flops(system.model.shape(), lengths, float(predictions(lengths).sum()))
    parts = system.layout.data * system.parts
    return Load(*_dealt(system.global_batch_size, parts, system.model.max_positions), flops)


@cache
def _dealt(samples: int, parts: int, longest: int) -> tuple[float, float, float]:
    """Return mean and most tokens of a part, and most pairs, over some steps."""
    tokens, pairs = [], []
    for step in range(_STEPS):
        lengths = np.minimum(draw_lengths(samples, _SEED + step), longest)
        (part_S,) = by_cost(lengths[None], parts, np.arange(longest + 1, dtype=np.float64), equal_counts=False)
        tokens.append(np.bincount(part_S, lengths, parts))
        pairs.append(np.bincount(part_S, np.square(lengths, dtype=np.float64), parts))
    return float(np.mean(tokens)), float(np.max(tokens)), float(np.max(pairs))


def _data_seconds(system: System, hardware: Hardware, calibrated: Calibration, compute: float) -> float:
    """Return the seconds that data-parallel ranks wait for gradients; ranks of a node are neighbours."""
    layout, shape = system.layout, system.model.shape()
    if layout.data == 1:
        return 0.0
    nodes = max(1, layout.data * layout.tensor // system.launch.ranks_per_node)
    held, sent = theory.stage_parameters(shape, layout, 0), sent_by(system)
    if system.parallel.splits:  # in fp32: a layer at once, or parallel/gradients.py's buckets
        parts = shape.layers + 1 if system.parallel.fully_shard else -(-held // _BUCKET_ELEMENTS)
        sent = Sent(bytes_each=4, collectives=parts)
    reduction = reduction_seconds(hardware, layout.data, nodes, calibrated.network_share, sent, held)
    if system.parallel.fully_shard:  # every part gathers twice and scatters once, overlapped with computing
        return max(0.0, 1.5 * reduction * system.parts - compute)
    return reduction if system.parallel.splits else exposed_seconds(reduction, compute, sent.collectives)
