"""Reduce gradients in DDP's communication hook.

DDP passes each bucket of gradients to the hook as soon as the backward pass has filled it. The hook clips it (clip.py)
and starts its sum over the ranks (communication.py), overlapped with the rest of the backward pass. It never reads a
value back from the device.
"""

from typing import cast

import torch
from torch import nn
from torch._C._distributed_c10d import GradBucket
from torch.nn.parallel import DistributedDataParallel

from bertbench.common.ranges import ALL_REDUCE, named
from bertbench.optim.bucket_parallel import BucketParallel, FlatBucket, flat_buckets
from bertbench.optim.bucket_sum import BucketSum, TensorFuture, done
from bertbench.optim.clip import clipping, contribution_limit
from bertbench.optim.options import ClipMode


class Reducer:
    """Clips and sums the gradients of one DDP module.

    DDP's first backward pass fills only one bucket; the second uses the final ones. Run two warm-up steps, then
    `reset`.
    """

    def __init__(
        self, mode: ClipMode, max_norm: float, ranks: int, bucket_sum: BucketSum, scale: torch.Tensor | None
    ) -> None:
        self._mode = mode
        self._max_norm = max_norm
        self._ranks = ranks
        self._sum = bucket_sum
        self._scale = scale
        self.buckets: tuple[int, ...] = ()
        """Elements of each bucket of the last step, in the order of reduction."""
        self._sizes: list[int] = []
        self._held: list[GradBucket] = []
        self._begun: list[TensorFuture] = []
        self._active: list[torch.Tensor] = []

    def attach(
        self, model: nn.Module, bucket_mb: float | None = None, init_sync: bool = True
    ) -> DistributedDataParallel:
        """Return the model under DDP, with gradients as views of its buckets and reduced here.

        `bucket_mb`: size of a bucket in MiB, DDP's own 25 if None. `init_sync`: send rank 0's weights to all.
        """
        module = DistributedDataParallel(
            model, gradient_as_bucket_view=True, bucket_cap_mb=bucket_mb, init_sync=init_sync
        )
        module.register_comm_hook(None, self._hook)
        return module

    def attach_buckets(self, model: nn.Module, bucket_mb: float | None = None) -> BucketParallel:
        """Do what `attach` does with fewer launches; not for PowerSGD, whose hook is written for DDP's buckets."""

        def begin(bucket: FlatBucket) -> None:
            # of DDP's buckets sums ask no more than a flat one gives (bucket_sum.Travelling)
            self._begun.append(self._hook(None, cast(GradBucket, bucket)))

        return BucketParallel(model, flat_buckets(model, bucket_mb), begin)

    def reset(self) -> None:
        """Forget the state of earlier steps, but not the buckets; call it after a warm-up."""
        self._sum.reset()

    def state(self) -> dict[str, torch.Tensor]:
        """Return the tensors in memory on which later reductions depend."""
        return self._sum.state()

    def finish(self) -> torch.Tensor | None:
        """End a step's reduction, after its last backward pass.

        Returns the share of this rank's clipping decisions that reduced a gradient, on the device; None in modes that
        don't clip before the reduction.
        """
        begun, self._begun = self._begun, []
        with named(ALL_REDUCE):
            for future in begun:  # DDP waits for its own at the end of the backward pass
                future.wait()
        self.buckets, self._sizes = tuple(self._sizes), []
        held, self._held = self._held, []
        if held:
            buffers = [bucket.buffer() for bucket in held]
            factor, active = clipping(buffers, self._limit(buckets=1))
            self._active.append(active)
            with named(ALL_REDUCE):
                for future in [self._sum(bucket, factor) for bucket in held]:
                    future.wait()  # on CUDA the stream waits, not the host
        with named(ALL_REDUCE):
            self._sum.finish()
        decisions, self._active = self._active, []
        return torch.stack(decisions).mean() if decisions else None

    def _hook(self, _: None, bucket: GradBucket) -> TensorFuture:
        buffer = bucket.buffer()
        self._sizes.append(buffer.numel())
        if self._mode == "before":
            self._held.append(bucket)
            return done(buffer)
        factor = None
        if self._mode == "bucket":
            # the previous step's table: tables differ only during warm-up
            factor, active = clipping([buffer], self._limit(len(self.buckets) or 1))
            self._active.append(active)
        return self._sum(bucket, factor)

    def _limit(self, buckets: int) -> float | torch.Tensor:
        limit = contribution_limit(self._max_norm, self._ranks, buckets)
        return limit if self._scale is None else self._scale * limit
