"""Sum low-rank factors of gradient matrices: torch's PowerSGD hook (Vogels et al. 2019) on our buckets."""

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, Self

import torch
from torch import distributed
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook

from bertbench.config.optimizer import Communication
from bertbench.optim.buckets import Bucket
from bertbench.optim.exchange import Exchange
from bertbench.optim.gradient_sum import GradientSum, Shapes, scaled
from bertbench.optim.traffic import GRADIENT_BYTES

_LEAST_SAVING = 2  # torch's hook compresses a tensor only if its factors take less than half its size


class PowerSgdSum(GradientSum):
    """Send low-rank factors, and add their error to the next step's gradient.

    torch's hook waits for the device when it decompresses.
    """

    def __init__(self, rank: int, start_step: int, buckets: int) -> None:
        """Take the rank of the factors, the steps that are summed in full before, and the number of buckets."""
        self._rank, self._start_step, self._last = rank, start_step, buckets - 1
        self._begun: list[tuple[Bucket, torch.futures.Future[torch.Tensor]]] = []
        self.reset()

    @classmethod
    def of(cls, options: Communication, exchange: Exchange, buckets: int) -> Self:
        """See `GradientSum`."""
        del exchange
        return cls(options.powersgd_rank, options.powersgd_start_step, buckets)

    @staticmethod
    def bytes_per_step(options: Communication, shapes: Shapes, buckets: Sequence[int], ranks: int) -> int:
        """See `GradientSum`: once it has started."""
        del buckets, ranks
        return GRADIENT_BYTES * sum(_elements(shape, options.powersgd_rank) for shape in shapes)

    def begin(self, bucket: Bucket, factor: torch.Tensor | None) -> None:
        """See `GradientSum`; the sum is an approximation."""
        scaled(bucket.gradients, factor)
        torchs: Any = SimpleNamespace(  # the part of torch's GradBucket that its hook uses
            index=lambda: bucket.number, buffer=lambda: bucket.gradients, gradients=lambda: bucket.views,
            is_last=lambda: bucket.number == self._last,
        )  # fmt: skip
        mean = powerSGD_hook(self._state, torchs)
        if not bucket.gradients.is_cuda:
            mean.wait()  # the hook's later all-reduces start in gloo's threads, in any order of buckets
        self._begun.append((bucket, mean))

    def finish(self) -> None:
        """See `GradientSum`."""
        begun, self._begun = self._begun, []
        for bucket, mean in begun:
            mean.wait()
            bucket.gradients.mul_(distributed.get_world_size())

    def reset(self) -> None:
        """Forget the errors and factors of earlier steps, and restart the count of steps."""
        self._state = PowerSGDState(
            distributed.group.WORLD,
            matrix_approximation_rank=self._rank,
            start_powerSGD_iter=self._start_step,
            orthogonalization_epsilon=1e-8,  # an unused embedding's gradient of zeros would give NaN
        )


def _elements(shape: Sequence[int], rank: int) -> int:
    """Count the elements of an n x m matrix's factors, n x r and r x m; further dimensions count into m."""
    rows, whole = shape[0], math.prod(shape)
    columns = whole // rows
    factors = (rows + columns) * min(rows, columns, rank)
    return factors if factors * _LEAST_SAVING < whole else whole
