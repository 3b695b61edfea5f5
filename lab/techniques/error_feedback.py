"""Carry what a compressed sum leaves out into the next step.

If g_t is a rank's gradient and e_t its error, the rank sends C(g_t + e_t) and keeps e_{t+1} = g_t + e_t - C(g_t + e_t)
(Seide et al. 2014; Karimireddy et al. 2019). An all-reduce can't add up compressed numbers, so other collectives
replace it: int8.py, topk.py. The first exchange of a bucket overlaps the backward pass; `finish` does the rest in the
order of the buckets.
"""

from typing import Any, NamedTuple

from torch import Tensor, distributed

from bertbench.gradients.buckets import Bucket
from bertbench.gradients.gradient_sum import GradientSum


class Started(NamedTuple):
    """A bucket whose first exchange has started."""

    bucket: Bucket
    received: Tensor
    """The data that has arrived when `work` is done."""
    work: Any


class ErrorFeedback(GradientSum):
    """A compressed sum that carries over what it left out, as tensors by kind and bucket, which are zero at first."""

    def __init__(self) -> None:
        self._rank = distributed.get_rank()
        self._ranks = distributed.get_world_size()
        self._carried: dict[tuple[str, int], Tensor] = {}
        self._started: list[Started] = []

    def _error(self, kind: str, bucket: Bucket, elements: int) -> Tensor:
        if (kind, bucket.number) not in self._carried:
            self._carried[kind, bucket.number] = bucket.gradients.new_zeros(elements)
        return self._carried[kind, bucket.number]

    def _with_gradient(self, bucket: Bucket, elements: int, factor: Tensor | None) -> Tensor:
        """Return the sum of a bucket's error and `factor` times its gradient, in at least as many elements."""
        error = self._error("error", bucket, elements)
        contribution = bucket.gradients if factor is None else bucket.gradients * factor
        error[: bucket.gradients.numel()].add_(contribution)
        return error

    def _take_started(self) -> list[Started]:
        """Return the exchanges that were started since the last call."""
        started = self._started
        self._started = []
        return started

    def reset(self) -> None:
        """Forget the errors; see `GradientSum`."""
        for tensor in self._carried.values():
            tensor.zero_()

    def state(self) -> dict[str, Tensor]:
        """Return this rank's errors: those of its gradients, and for int8 those of its slices of the sums."""
        return {f"{kind}.{self._rank}.{number}": tensor for (kind, number), tensor in self._carried.items()}
