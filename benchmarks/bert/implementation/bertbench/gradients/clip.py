"""Clip gradients, before or after the reduction.

Let clip(x, c) = x * min(1, c / |x|), with the Euclidean norm. The loss is divided by the counts of the global batch, so
the backward pass of rank r of R computes a contribution d_r, and G = d_1 + ... + d_R is the gradient. The usual
gradient of a rank in data-parallel training is g_r = R d_r, and G is the mean of these. If c is the largest norm:

    none      G
    after     clip(G, c)
    before    mean over r of clip(g_r, c)                 = sum over r of clip(d_r, c / R)
    bucket    for each of the B gradient buckets b:
              mean over r of clip(g_r[b], c / sqrt(B))    = sum over r of clip(d_r[b], c / (R sqrt(B)))

`before` needs a rank's whole gradient, so it can't overlap communication with the backward pass. `bucket` needs only
one bucket at a time and has the same bound on the norm: B parts with norms of at most c / sqrt(B) make a whole with a
norm of at most c (arXiv 2402.02447, section on bucket-wise clipping). Neither changes a gradient whose parts are all
within the limit.

With gradient accumulation, d_r is the sum over the rank's parts. If each of P parts is clipped separately
(`clip.parts`), every part contributes like a rank of its own, and R P replaces R. With loss scale S, buffers hold S
d_r, and limits are S times as large. Non-finite gradients stay non-finite: inf times 0 is NaN, which spreads over the
buffer, so that every rank sees it after the reduction.
"""

import torch
from torch import Tensor, nn

from bertbench.common.scalars import Scalar
from bertbench.config.optimizer import ClipMode
from bertbench.model.logical_tensors import gradients_of


def contribution_limit(max_norm: float, contributions: int, buckets: int = 1, exponent: float = 0.5) -> float:
    """Return the largest norm of a contribution to one of `buckets` buckets: c / (R B^e) for R contributions.

    A rank makes one contribution, or one for each part that is clipped separately. Training uses e = 1/2, the square
    root above; `lab study buckets` tries other exponents.
    """
    return max_norm / (contributions * buckets**exponent)


def after_coefficient(norm: Tensor, max_norm: float) -> Tensor:
    """Return the factor that clips a gradient of this norm, as torch's clip_grad_norm_ computes it."""
    return (max_norm / (norm + 1e-6)).clamp(max=1)


class GradientClip:
    """Clips nothing (mode `none`). The other modes override the methods in which they differ."""

    waits_for_all = False
    """Whether clipping needs a rank's whole gradient before the reduction."""

    def contribution(self, buffers: list[Tensor]) -> Tensor | None:
        """Return the factor on this rank's contribution, which is one bucket or all of them; None means 1."""
        del buffers
        return None

    def reduced(self, norm: Tensor) -> tuple[Tensor | None, Tensor]:
        """Return the factor that the optimizer must still apply (None for 1), and the share of decisions that clipped.

        `norm` is the norm of the reduced gradient, without loss scale.
        """
        return None, torch.zeros_like(norm)

    def reset(self) -> None:
        """Forget the contributions since the last reduction."""


class ClipAfter(GradientClip):
    """Clips the reduced gradient."""

    def __init__(self, max_norm: float) -> None:
        self._max_norm = max_norm

    def reduced(self, norm: Tensor) -> tuple[Tensor | None, Tensor]:
        """Return the factor that follows from the norm of the sum; see `GradientClip`."""
        clipped = (norm > self._max_norm).float()
        return after_coefficient(norm, self._max_norm), clipped


class ClipContribution(GradientClip):
    """Clips this rank's gradient before it is summed: each bucket, or the whole gradient."""

    def __init__(self, limit: float, scale: Scalar, waits_for_all: bool) -> None:
        """Take the limit on a contribution's norm, and the loss scale, which is a tensor if it changes."""
        self._limit = limit
        self._scale = scale
        self.waits_for_all = waits_for_all
        self._decisions: list[Tensor] = []

    @torch.no_grad()
    def contribution(self, buffers: list[Tensor]) -> Tensor | None:
        """Return the factor that follows from the norm of these buffers; see `GradientClip`."""
        norm = nn.utils.get_total_norm(buffers, foreach=True)
        limit = self._scale * self._limit
        self._decisions.append((norm > limit).float())
        return (limit / norm).clamp(max=1)

    def reduced(self, norm: Tensor) -> tuple[Tensor | None, Tensor]:
        """Return the share of this step's contributions that were clipped; see `GradientClip`."""
        del norm
        share = torch.stack(self._decisions).mean()
        self._decisions = []
        return None, share

    def reset(self) -> None:
        """Forget the decisions since the last reduction; see `GradientClip`."""
        self._decisions = []


def make_clip(mode: ClipMode, max_norm: float, contributions: int, buckets: int, scale: Scalar = 1.0) -> GradientClip:
    """Return the clipping of a mode, for gradients in `buckets` buckets of a loss that is multiplied by `scale`.

    `contributions` counts those of all ranks: see `contribution_limit`.
    """
    match mode:
        case "none":
            return GradientClip()
        case "after":
            return ClipAfter(max_norm)
        case "before":
            return ClipContribution(contribution_limit(max_norm, contributions), scale, waits_for_all=True)
        case "bucket":
            return ClipContribution(contribution_limit(max_norm, contributions, buckets), scale, waits_for_all=False)


@torch.no_grad()
def gradient_norm(parameters: list[nn.Parameter]) -> Tensor:
    """Return the global norm of the gradient, on the device."""
    return nn.utils.get_total_norm(gradients_of(parameters), foreach=True)
