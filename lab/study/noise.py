"""Measure the gradient noise scale, and from it the statistical efficiency of a batch size.

phi = tr(Sigma) / |G|^2 is the variance of one sample's gradient over the square of the mean gradient (McCandlish et al.
2018, arXiv 1812.06162). Statistical efficiency is Pollux's (Qiao et al., OSDI 2021). For Adam, Pollux preconditions
gradients by the second moments. Here they stay plain: in so short a run, rows of rare words, whose moments are almost
0, would outweigh all others.
"""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import distributed

from bertbench.config import System
from bertbench.distributed.world import World
from bertbench.loading.loader import LoadedPart
from bertbench.parallel.stage import Stage
from bertbench.training.layout_trainer import LayoutTrainer
from bertbench.training.trainer import Trainer


class Squares(NamedTuple):
    """Squared gradient norms of one step; its parts' gradients add up to the global batch's."""

    whole: float
    """Square of the norm of the global batch's gradient."""
    parts: float
    """Sum over the parts of the squares of their norms."""
    concentration: float
    """Sum over the parts of the square of their share of the samples: 1 / K for K equal parts."""


def noise_scale(steps: Sequence[Squares], batch: int) -> float:
    """Return phi in samples, from steps of `batch` samples; infinite where noise hides the gradient.

    With independent samples the means of `whole` and `parts` are |G|^2 + tr(Sigma) / batch and concentration |G|^2 +
    tr(Sigma) / batch; for equal parts, solving for both is appendix A.1 of McCandlish et al. The means over the steps
    come before the ratio, because a mean of ratios is biased.
    """
    signal = statistics.mean((whole - parts) / (1 - share) for whole, parts, share in steps)
    noise = statistics.mean(batch * (parts - share * whole) / (1 - share) for whole, parts, share in steps)
    return max(0.0, noise) / signal if signal > 0 else math.inf


def statistical_efficiency(noise: float, batch: int, base: int) -> float:
    """Return a sample's progress in batches of M = `batch` relative to M0 = `base`: (phi + M0) / (phi + M)."""
    return 1.0 if math.isinf(noise) else (noise + base) / (noise + batch)


class PartGradients:
    """Record the gradient of every part of a step before the sum. Collective: all ranks construct and query it."""

    def __init__(self, system: System, world: World, trainer: Trainer) -> None:
        self._world, self._batch, self._pipeline = world, system.global_batch_size, system.layout.pipeline
        self._squares = 0.0
        self._groups, words = None, None
        if isinstance(trainer, LayoutTrainer):
            self._groups = trainer.groups
            stages = [stage for stage in trainer.model.children() if isinstance(stage, Stage)]
            words = next((stage.words for stage in stages if stage.words is not None), None)
        self._words: list[torch.Tensor] = []
        """One entry a part: the first and the last stage each compute a piece of the word embeddings' gradient."""
        for parameter in trainer.model.parameters():
            parameter.register_hook(self._keep if parameter is words else self._add)

    def squares(self, parts: Sequence[LoadedPart], norm: torch.Tensor) -> Squares:
        """Return the squares of the step taken with these parts of this rank; `norm` is its gradient's norm."""
        if self._groups is not None and self._words:
            words = torch.stack(self._words)
            distributed.all_reduce(words, group=self._groups.tied)
            if self._groups.place.pipeline == 0:
                self._add(words)
        # every stage knows the same parts
        share = sum((len(part.ids) / self._batch) ** 2 for part, _ in parts) / self._pipeline
        of_parts, concentration = self._world.sum(torch.tensor([self._squares, share], dtype=torch.float64)).tolist()
        self._squares, self._words = 0.0, []
        return Squares(float(norm) ** 2, of_parts, concentration)

    def _add(self, gradient: torch.Tensor) -> None:
        self._squares += float(gradient.double().square().sum())

    def _keep(self, gradient: torch.Tensor) -> None:
        self._words.append(gradient.clone())
