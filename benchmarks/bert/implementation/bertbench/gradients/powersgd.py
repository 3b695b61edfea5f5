"""Sum low-rank factors of gradient matrices: torch's PowerSGD hook (Vogels et al. 2019) on our buckets."""

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, distributed
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook

from bertbench.config.optimizer import GRADIENT_BYTES, Communication
from bertbench.gradients.buckets import Bucket
from bertbench.gradients.exchange import Exchange
from bertbench.gradients.gradient_sum import GradientSum, Handed, scaled

_LEAST_SAVING = 2  # torch's hook compresses a tensor only if its factors take less than half its size


class PowerSgdSum(GradientSum):
    """Send low-rank factors, and add their error to the next step's gradient.

    torch's hook waits for the device when it decompresses.
    """

    def __init__(self, options: Communication, exchange: Exchange) -> None:
        super().__init__(options, exchange)
        self._begun: list[tuple[Bucket, torch.futures.Future[Tensor]]] = []
        self.reset()

    @staticmethod
    def bytes_per_step(handed: Handed) -> int:
        """See `GradientSum`: once it has started."""
        return GRADIENT_BYTES * sum(_elements(shape, handed.options.powersgd_rank) for shape in handed.shapes)

    def begin(self, bucket: Bucket, factor: Tensor | None) -> None:
        """See `GradientSum`; the sum is an approximation."""
        scaled(bucket.gradients, factor)
        torchs: Any = SimpleNamespace(  # the part of torch's GradBucket that its hook uses
            index=lambda: bucket.number, buffer=lambda: bucket.gradients, gradients=lambda: bucket.views,
            is_last=lambda: False,
        )  # fmt: skip
        mean = powerSGD_hook(self._state, torchs)
        if not bucket.gradients.is_cuda:
            mean.wait()  # the hook's later all-reduces start in gloo's threads, in any order of buckets
        self._begun.append((bucket, mean))

    def finish(self) -> None:
        """See `GradientSum`."""
        self._state.maybe_increase_iter(SimpleNamespace(is_last=lambda: True))
        begun, self._begun = self._begun, []
        for bucket, mean in begun:
            mean.wait()
            bucket.gradients.mul_(distributed.get_world_size())

    def reset(self) -> None:
        """Forget the errors and factors of earlier steps, and restart the count of steps."""
        self._state = PowerSGDState(
            distributed.group.WORLD,
            matrix_approximation_rank=self._options.powersgd_rank,
            start_powerSGD_iter=self._options.powersgd_start_step,
            orthogonalization_epsilon=1e-8,  # an unused embedding's gradient of zeros would give NaN
        )


def _elements(shape: Sequence[int], rank: int) -> int:
    """Count the elements of an n x m matrix's factors, n x r and r x m; further dimensions count into m."""
    rows, whole = shape[0], math.prod(shape)
    columns = whole // rows
    factors = (rows + columns) * min(rows, columns, rank)
    return factors if factors * _LEAST_SAVING < whole else whole
