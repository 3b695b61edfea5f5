"""Compressed gradients by samples to target: two gloo ranks, one made-up language, every arm with the same seeds.

Every run that ended is a line of trials.jsonl. A study that continues reads them, and repeats none of them.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import torch
from pydantic import Field

from bertbench.common.progress import Progress
from bertbench.common.section import Fraction
from bertbench.distributed.spawn import on_ranks
from bertbench.distributed.world import World
from bertbench.loading.loader import LoadedPart
from bertbench.model.bert import Bert
from bertbench.model.loss import weighted_loss
from bertbench.optim.buckets import Buckets, bucket_table, ready_order
from bertbench.optim.clip import gradient_norm, make_clip
from bertbench.optim.exchange import Exchange
from bertbench.optim.options import Communication, Compression
from bertbench.optim.reducer import GradientReducer
from bertbench.optim.sums import sum_class
from bertbench.results.linefile import LineFile
from bertbench.training.trainer import tiny_backward
from lab.study.compare import claim_study
from lab.study.language_study import LanguageStudy, initial_model
from lab.study.paired import Paired, SeedResult, paired
from lab.study.ranks_trial import to_target
from lab.study.virtual_ranks import Reduced

RANKS = 2
ARMS: tuple[Compression, ...] = ("none", "int8", "topk")


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
    """This rank's gradients of a model, summed as `compression` says and clipped after that."""

    def __init__(self, definition: CompressionDefinition, compression: Compression, model: Bert, world: World) -> None:
        """Every rank must make one at the same time."""
        options = Communication(compression=compression, topk_share=definition.topk_share)
        self._world, self._model = world, model
        order = ready_order(model, lambda: tiny_backward(lambda batch: model(*batch.inputs), model.shape))
        buckets = Buckets(bucket_table(order, definition.bucket_mb))
        clip = make_clip("after", definition.max_norm, world.size, len(buckets.all))
        way = sum_class(compression).of(options, Exchange(), len(buckets.all))
        self._reducer = GradientReducer(buckets, clip, way, partial(gradient_norm, list(model.parameters())))

    def reduce(self, shares: Sequence[LoadedPart]) -> Reduced:
        """Leave the sum of all ranks' gradients in every parameter's `grad`; `shares` has each rank's part."""
        self._reducer.drop()
        part, batch = shares[self._world.rank]
        scores = self._model(*batch.inputs)
        loss = weighted_loss(scores, *batch.labels, part.masked_lm_weight, part.next_sentence_weight)
        loss.backward()
        reduced = self._reducer.finish()
        return Reduced(self._world.sum(loss.detach()), reduced.clipped, reduced.factor)


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
