"""Define a learning task with a known optimum: least squares on a stream of samples, the same for every variant.

A sample is a vector x of D independent normal numbers, and y = x w* + noise. The excess loss of weights w over the
optimum is therefore exactly |w - w*|^2 / 2, so that no evaluation data is needed to find the samples to a target.
"""

import numpy as np
import torch
from torch import Tensor

from bertbench.common.seeding import derive

_NOISE = 0.1


class LeastSquares:
    """The samples of one worker."""

    def __init__(self, elements: int, batch: int, worker: int, seed: int) -> None:
        """Draw w*, whose length is about 1 and which all workers share. Seed and worker determine the samples."""
        shared = torch.Generator().manual_seed(derive(seed, "optimum"))
        self.optimum = torch.randn(elements, generator=shared) / elements**0.5
        self._batch = batch
        self._samples = torch.Generator().manual_seed(derive(seed, "samples", worker))

    def gradient(self, weights: Tensor) -> Tensor:
        """Return the mean gradient of this worker's next batch."""
        inputs_BD = torch.randn(self._batch, len(weights), generator=self._samples)
        noise_B = _NOISE * torch.randn(self._batch, generator=self._samples)
        errors_B = inputs_BD @ (weights - self.optimum) - noise_B
        return inputs_BD.T @ errors_B / self._batch

    def excess(self, weights: Tensor) -> float:
        """Return the excess loss over the optimum, divided by the excess loss of zero weights."""
        start = self.optimum.square().sum()
        return float((weights - self.optimum).square().sum() / start)


def compute_seconds(
    steps: int, worker: int, seed: int, usual_s: float, slow_s: float, slow_share: float
) -> list[float]:
    """Return the computing time of each step of a worker; some steps, chosen at random, are slow."""
    random = np.random.default_rng(derive(seed, "slow", worker))
    slow = random.random(steps) < slow_share
    return np.where(slow, slow_s, usual_s).tolist()
