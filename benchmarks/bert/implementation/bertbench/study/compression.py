"""Compressed gradients by samples to target: two gloo ranks, one made-up language, every arm with the same seeds.

Every run that ended is a line of trials.jsonl. A study that continues reads them, and repeats none of them.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from pydantic import Field

from bertbench.common.progress import Progress
from bertbench.config.sections import Fraction
from bertbench.distributed.spawn import on_ranks
from bertbench.distributed.world import World
from bertbench.loading.loader import LoadedPart
from bertbench.model.bert import Bert
from bertbench.model.loss import weighted_loss
from bertbench.optim.clip import after_clipping, gradient_norm
from bertbench.optim.comm_hook import Reducer
from bertbench.optim.communication import bucket_sum
from bertbench.optim.options import Compression, ReduceOptions
from bertbench.results.linefile import LineFile
from bertbench.study.compare import claim_study
from bertbench.study.language_study import LanguageStudy, initial_model
from bertbench.study.paired import Paired, SeedResult, paired
from bertbench.study.ranks_trial import to_target
from bertbench.study.virtual_ranks import Reduced

RANKS = 2
ARMS: tuple[Compression, ...] = ("none", "int8", "topk")
_WARMUP_STEPS = 2  # DDP makes its buckets after the first


class CompressionDefinition(LanguageStudy):
    """The study; its values are those of gradients in full, for every arm."""

    bucket_mb: Annotated[float, Field(gt=0)]
    max_norm: Annotated[float, Field(gt=0)]
    """Of the gradient after the reduction."""
    topk_share: Fraction
    """Share of a bucket's elements that top-k sends."""


@dataclass(frozen=True)
class Row(SeedResult):
    """One seed of one arm."""

    accuracy: float
    """At the last evaluation."""


class RealRanks:
    """This rank's gradients of a model under DDP, summed as `compression` says and clipped after that."""

    def __init__(self, definition: CompressionDefinition, compression: Compression, model: Bert, world: World) -> None:
        """Every rank must make one at the same time."""
        options = ReduceOptions(compression=compression, topk_share=definition.topk_share)
        self._world, self._max_norm = world, definition.max_norm
        self._parameters = list(model.parameters())
        self._reducer = Reducer("after", definition.max_norm, world.size, bucket_sum(options, world.size), None)
        self._parallel = self._reducer.attach(model, definition.bucket_mb)
        any_words = np.random.default_rng(0)
        for _ in range(_WARMUP_STEPS):
            self.reduce(definition.language().shares(any_words, definition.global_batch_size, world.size))
        self._reducer.reset()

    def reduce(self, shares: Sequence[LoadedPart]) -> Reduced:
        """Leave the sum of all ranks' gradients in every parameter's `grad`; `shares` has each rank's part."""
        self._parallel.zero_grad()
        part, batch = shares[self._world.rank]
        scores = self._parallel(*batch.inputs)
        loss = weighted_loss(scores, *batch.labels, part.masked_lm_weight, part.next_sentence_weight)
        loss.backward()
        self._reducer.finish()
        norm = gradient_norm(self._parameters)
        total = self._world.sum(loss.detach())
        factor, active = after_clipping(norm, self._max_norm)
        return Reduced(total, active, factor)


def compare(definition: CompressionDefinition, seeds: int, folder: Path) -> tuple[list[Row], list[Paired]]:
    """Run what the folder doesn't hold; raises ConfigError if it holds another study."""
    claim_study(folder, definition)
    rows: list[Row] = on_ranks(RANKS, _rows, definition, seeds, folder / "trials.jsonl")
    return rows, [one for arm in ARMS[1:] if (one := paired(rows, arm, ARMS[0]))]


def _rows(world: World, definition: CompressionDefinition, seeds: int, path: Path) -> list[Row]:
    """On every rank: seed by seed, so that a study that is stopped has as many of every arm."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    known = {(row.arm, row.seed): row for row in (Row(**json.loads(line)) for line in lines)}
    world.barrier()  # all have read what is there before anything is added
    kept = LineFile(path) if world.leads else None
    progress = Progress(enabled=world.leads)
    torch.set_num_threads(1)
    rows = []
    for seed in range(1, seeds + 1):
        for arm in ARMS:
            row = known.get((arm, seed)) or run_trial(world, definition, arm, seed)
            if kept and (arm, seed) not in known:
                kept.append(json.dumps(asdict(row)) + "\n")
                progress.message(f"{arm}, seed {seed}: {row.samples_to_target or 'missed'} samples")
            rows.append(row)
    return rows


def run_trial(world: World, definition: CompressionDefinition, arm: Compression, seed: int) -> Row:
    """Train on all ranks until the target or the schedule's end; every rank must call it."""
    model = initial_model(definition.model, seed)
    ranks = RealRanks(definition, arm, model, world)
    outcome = to_target(definition, definition.optimizer, model, ranks.reduce, world.size, seed)
    return Row(arm, seed, outcome.samples, outcome.samples is not None, outcome.accuracy)
