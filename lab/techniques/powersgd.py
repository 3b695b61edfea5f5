"""Sum low-rank factors of gradient matrices, by torch's PowerSGD hook (Vogels et al. 2019) on our buckets."""

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, distributed
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook

from bertbench.common.section import Count
from bertbench.config.optimizer import GRADIENT_BYTES
from bertbench.config.rules import allow_only
from bertbench.gradients.buckets import Bucket
from bertbench.gradients.exchange import Exchange
from bertbench.gradients.gradient_sum import GradientSum, scale_in_place
from bertbench.training.technique import Technique
from lab.techniques.rules import RULES

_LEAST_SAVING = 2  # torch's hook compresses a tensor only if its factors take less than half its size


class PowerSgd(Technique):
    """Ranks send each gradient matrix as two thin factors."""

    name = "powersgd"
    rules = (
        *RULES,
        *allow_only(
            {"checkpoint.every_steps": (None,)},
            where=lambda _: True,
            because="asks for snapshots, which don't hold the errors that powersgd carries from step to step",
            instead="choose another technique",
        ),
    )
    takes_snapshots: ClassVar[bool] = False

    rank: Count = 4
    """Rank of the factors. A lower one sends less and keeps less of a gradient."""
    start_step: Annotated[int, Field(ge=2)] = 10
    """Steps that are summed in full before it starts. Raise it where the first steps diverge."""

    def gradient_sum(self, exchange: Exchange) -> "PowerSgdSum":
        """Return the sum of factors; see `Technique`."""
        del exchange
        return PowerSgdSum(self.rank, self.start_step)


class PowerSgdSum(GradientSum):
    """Sends low-rank factors, and adds their error to the next step's gradient.

    torch's hook waits for the device when it decompresses.
    """

    def __init__(self, rank: int, start_step: int) -> None:
        self._rank = rank
        self._start_step = start_step
        self._started: list[tuple[Bucket, torch.futures.Future[Tensor]]] = []
        self.reset()

    def bytes_per_step(self, shapes: Sequence[Sequence[int]], bucket_elements: Sequence[int]) -> int:
        """Count the elements of the factors, which are sent after PowerSGD has started; see `GradientSum`."""
        del bucket_elements
        return GRADIENT_BYTES * sum(sent_elements(shape, self._rank) for shape in shapes)

    def begin(self, bucket: Bucket, factor: Tensor | None) -> None:
        """Start torch's hook on the bucket, whose sum will be an approximation; see `GradientSum`."""
        scale_in_place(bucket.gradients, factor)
        grad_bucket: Any = SimpleNamespace(  # the part of torch's GradBucket that its hook uses
            index=lambda: bucket.number,
            buffer=lambda: bucket.gradients,
            gradients=lambda: bucket.views,
            is_last=lambda: False,
        )
        mean = powerSGD_hook(self._state, grad_bucket)
        if not bucket.gradients.is_cuda:
            mean.wait()  # the hook's later all-reduces start in gloo's threads, in any order of buckets
        self._started.append((bucket, mean))

    def finish(self) -> None:
        """Wait for the means and multiply them by the number of ranks; see `GradientSum`."""
        self._state.maybe_increase_iter(SimpleNamespace(is_last=lambda: True))
        for bucket, mean in self._started:
            mean.wait()
            bucket.gradients.mul_(distributed.get_world_size())
        self._started = []

    def reset(self) -> None:
        """Forget the errors and factors of earlier steps, and restart the count of steps."""
        self._state = PowerSGDState(
            distributed.group.WORLD,
            matrix_approximation_rank=self._rank,
            start_powerSGD_iter=self._start_step,
            orthogonalization_epsilon=1e-8,  # without it, the zero gradient of an unused embedding would result in NaN
        )


def sent_elements(shape: Sequence[int], rank: int) -> int:
    """Count the elements that are sent of an n x m matrix: factors n x r and r x m, or all if factors save too little.

    Further dimensions are part of m.
    """
    elements = math.prod(shape)
    rows = shape[0]
    columns = elements // rows
    factor_elements = (rows + columns) * min(rows, columns, rank)
    return factor_elements if factor_elements * _LEAST_SAVING < elements else elements
