"""Sum one bucket over the ranks: in full, compressed (int8 and top-k in error_feedback.py), or by node."""

from collections.abc import Callable
from contextlib import nullcontext

import torch
from torch import distributed
from torch._C._distributed_c10d import GradBucket
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook

from bertbench.optim.bucket_sum import BucketSum, TensorFuture, Travelling, done
from bertbench.optim.collectives import all_gather, reduce_scatter, slice_of
from bertbench.optim.error_feedback import Int8Sum, TopKSum
from bertbench.optim.options import Compression, ReduceOptions

FORMATS: dict[Compression, torch.dtype] = {"fp16": torch.float16, "bf16": torch.bfloat16}
SumTensor = Callable[[torch.Tensor], TensorFuture]


def bucket_sum(options: ReduceOptions, local_size: int, whole: SumTensor | None = None) -> BucketSum:
    """Return the sum that the options describe, for ranks numbered node by node with `local_size` each.

    `whole` sums whole tensors, torch's all-reduce if None. Collective: it may build process groups.
    """
    if options.compression == "powersgd":
        return PowerSgdSum(options)
    if options.compression == "int8":
        return Int8Sum()
    if options.compression == "topk":
        return TopKSum(options.topk_share)
    return plain_sum(options, local_size, whole)


def plain_sum(options: ReduceOptions, local_size: int, whole: SumTensor | None = None) -> "PlainSum":
    """Return the sum of every element that the options describe; see `bucket_sum`. Collective, as it is."""
    sum_tensor = HierarchicalSum(local_size) if options.hierarchical else whole or flat_sum
    return PlainSum(FORMATS.get(options.compression), sum_tensor)


def flat_sum(buffer: torch.Tensor) -> TensorFuture:
    """Start one all-reduce over all ranks."""
    work = distributed.all_reduce(buffer, async_op=True)
    return work.get_future().then(lambda _: buffer)


class OwnGradient:
    """Estimate the sum without communication: this rank's own gradient times the number of ranks."""

    def __call__(self, bucket: GradBucket, factor: torch.Tensor | None) -> TensorFuture:
        """See `BucketSum`."""
        buffer = bucket.buffer().mul_(distributed.get_world_size())
        return done(buffer if factor is None else buffer.mul_(factor))

    def finish(self) -> None:
        """Nothing."""

    def reset(self) -> None:
        """Do nothing: no state stays between steps."""

    def state(self) -> dict[str, torch.Tensor]:
        """Nothing."""
        return {}


def halve(buffer: torch.Tensor, factor: torch.Tensor | None, divisor: int, compressed: torch.Tensor) -> None:
    """Write factor / divisor times the buffer into `compressed`, rounded once: clipping needs no extra pass."""
    if factor is None:
        torch.div(buffer, divisor, out=compressed)
    else:
        torch.mul(buffer, factor / divisor, out=compressed)


class PlainSum:
    """Sum every element, in the gradients' own format or in half the bytes.

    fp16 is divided by the number of ranks first, so that sums stay in range, like torch's fp16 hook; torch's bf16 hook
    refuses gloo.
    """

    def __init__(self, compressed: torch.dtype | None, sum_tensor: SumTensor) -> None:
        self._format = compressed
        self._sum_tensor = sum_tensor
        # kept between steps: torch's watchdog frees a collective's buffer late
        self._halves: dict[int, torch.Tensor] = {}

    def __call__(self, bucket: Travelling, factor: torch.Tensor | None) -> TensorFuture:
        """See `BucketSum`."""
        buffer = bucket.buffer()
        if self._format is None:
            return self._sum_tensor(buffer if factor is None else buffer.mul_(factor))
        divisor = distributed.get_world_size() if self._format == torch.float16 else 1
        compressed = self._halves.get(bucket.index())
        if compressed is None or compressed.numel() != buffer.numel():  # DDP rebuilds its buckets once
            compressed = self._halves[bucket.index()] = torch.empty_like(buffer, dtype=self._format)
        halve(buffer, factor, divisor, compressed)

        def restore(_: TensorFuture) -> torch.Tensor:
            buffer.copy_(compressed)
            return buffer if divisor == 1 else buffer.mul_(divisor)

        return self._sum_tensor(compressed).then(restore)

    def finish(self) -> None:
        """Nothing."""

    def reset(self) -> None:
        """Do nothing: each step overwrites the buffers."""

    def state(self) -> dict[str, torch.Tensor]:
        """Nothing."""
        return {}


class HierarchicalSum:
    """Scatter the sum within each node, add the pieces across nodes, gather within the node.

    For a buffer of n bytes, each of a node's L ranks sends n / L between nodes; a flat ring sends all of it over every
    link. On CUDA the three calls run on a separate stream; gloo waits for each.
    """

    def __init__(self, local_size: int) -> None:
        rank, size = distributed.get_rank(), distributed.get_world_size()
        self._local_size, self._local_rank = local_size, rank % local_size
        self._within = self._across = distributed.group.WORLD
        for first in range(0, size, local_size):
            ranks = list(range(first, first + local_size))
            group = distributed.new_group(ranks)
            self._within = group if rank in ranks else self._within
        for local_rank in range(local_size):
            ranks = list(range(local_rank, size, local_size))
            group = distributed.new_group(ranks)
            self._across = group if rank in ranks else self._across
        self._stream = torch.cuda.Stream() if torch.cuda.is_initialized() else None

    def __call__(self, buffer: torch.Tensor) -> TensorFuture:
        """Sum over all ranks, in place."""
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream())
            buffer.record_stream(self._stream)
        with torch.cuda.stream(self._stream) if self._stream is not None else nullcontext():
            filling = -buffer.numel() % self._local_size
            whole = torch.nn.functional.pad(buffer, (0, filling)) if filling else buffer
            piece = slice_of(whole, self._local_rank, self._local_size)
            reduce_scatter(piece, whole, group=self._within)
            distributed.all_reduce(piece, group=self._across)
            all_gather(whole, piece, group=self._within)
            if filling:
                buffer.copy_(whole[: buffer.numel()])
            return done(buffer)


class PowerSgdSum:
    """torch's PowerSGD hook (Vogels et al. 2019): send low-rank factors, add their error to the next step's gradient.

    torch's hook waits for the device when it decompresses.
    """

    def __init__(self, options: ReduceOptions) -> None:
        self._options = options
        self.reset()

    def reset(self) -> None:
        """Forget the errors and factors of earlier steps, and restart the count of steps."""
        self._state = PowerSGDState(
            distributed.group.WORLD,
            matrix_approximation_rank=self._options.powersgd_rank,
            start_powerSGD_iter=self._options.powersgd_start_step,
            orthogonalization_epsilon=1e-8,  # an unused embedding's gradient of zeros would give NaN
        )

    def __call__(self, bucket: GradBucket, factor: torch.Tensor | None) -> TensorFuture:
        """See `BucketSum`; the sum is an approximation."""
        ranks = distributed.get_world_size()
        if factor is not None:
            bucket.buffer().mul_(factor)
        mean = powerSGD_hook(self._state, bucket)
        if bucket.buffer().is_cuda:
            return mean.then(lambda future: future.value().mul_(ranks))
        # the hook's later all-reduces start in gloo's threads, in any order of buckets: run one bucket at a time
        return done(mean.wait().mul_(ranks))

    def finish(self) -> None:
        """Nothing."""

    def state(self) -> dict[str, torch.Tensor]:
        """Return nothing: the configuration refuses snapshots."""
        return {}
