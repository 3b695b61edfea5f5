"""Compare compressed gradients by samples to target, on two gloo ranks that learn one made-up language."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated

import torch
from pydantic import Field

from bertbench.common.section import Fraction
from bertbench.config.optimizer import Communication, Compression
from bertbench.distributed.spawn import on_ranks
from bertbench.distributed.world import World
from bertbench.loading.loader import LoadedPart
from bertbench.model.bert import Bert
from bertbench.model.loss import weighted_loss
from bertbench.optim.buckets import Buckets, bucket_table, ready_order
from bertbench.optim.clip import gradient_norm, make_clip
from bertbench.optim.exchange import Exchange
from bertbench.optim.reducer import GradientReducer
from bertbench.optim.sums import sum_class
from bertbench.training.trainer import tiny_backward
from lab.study.engine import Arm, Outcome, Values
from lab.study.language_study import LanguageStudy, initial_model
from lab.study.language_trial import to_target
from lab.study.virtual_ranks import Reduced

RANKS = 2
ARMS = (
    Arm("none", {"compression": "none"}),
    *(Arm(name, {"compression": name}, ("none",)) for name in ("int8", "topk")),
)


class CompressionDefinition(LanguageStudy):
    """The study; its values are those of gradients in full, for every arm."""

    bucket_mb: Annotated[float, Field(gt=0)]
    max_norm: Annotated[float, Field(gt=0)]
    """Of the gradient after the reduction."""
    topk_share: Fraction
    """Share of a bucket's elements that top-k sends."""


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


def run_arm(definition: CompressionDefinition, arm: Arm, _: Values, seed: int, most_samples: float) -> Outcome:
    """Train on ranks of their own until the target, the schedule's end or `most_samples`."""
    outcome: Outcome = on_ranks(RANKS, run_trial, definition, arm.choices["compression"], seed, most_samples)
    return outcome


def run_trial(
    world: World, definition: CompressionDefinition, compression: Compression, seed: int, most_samples: float
) -> Outcome:
    """Train on all ranks; every rank must call it."""
    torch.set_num_threads(1)
    model = initial_model(definition.model, seed)
    ranks = RealRanks(definition, compression, model, world)
    return to_target(definition, definition.optimizer, model, ranks.reduce, world.size, seed, most_samples)
