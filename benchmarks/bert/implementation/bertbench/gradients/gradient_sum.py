"""Sum buckets of gradients over the ranks: the interface, the sums of every element, and a registry of all kinds.

`begin` starts a bucket's sum during the backward pass, and `finish` completes all sums. They are sums and not means as
in torch's DDP: see clip.py. Compressed sums are in error_feedback.py and powersgd.py, delayed sums in delayed.py. A new
kind needs a class and an entry in the registry. A run loads only the kind that it uses.
"""

from collections.abc import Sequence
from pkgutil import resolve_name
from typing import NamedTuple

import torch
from torch import Tensor, distributed

from bertbench.config.optimizer import GRADIENT_BYTES, Communication, Compression, Sync
from bertbench.gradients.buckets import Bucket, Buckets
from bertbench.gradients.exchange import Exchange, Wait, slice_of


class SummedSizes(NamedTuple):
    """The sizes that determine how many bytes one rank contributes to a step's sums."""

    options: Communication
    shapes: Sequence[Sequence[int]]
    """The shapes of all parameters."""
    bucket_elements: Sequence[int]
    """The number of elements in each bucket."""
    ranks: int


class GradientSum:
    """Sums buckets over the ranks; this class keeps no state between steps."""

    def __init__(self, options: Communication, exchange: Exchange) -> None:
        """Take the options for sums, and the exchange that carries sums of every element."""
        self._options = options
        self._exchange = exchange

    @staticmethod
    def bytes_per_step(sizes: SummedSizes) -> int:
        """Return the bytes that one rank contributes to a step's sums."""
        return GRADIENT_BYTES * sum(sizes.bucket_elements)

    def begin(self, bucket: Bucket, factor: Tensor | None) -> None:
        """Start the sum of one bucket in place; this rank contributes `factor` times its content."""
        raise NotImplementedError

    def finish(self) -> None:
        """Complete the sums that were begun since the last call, in the same order."""

    def reset(self) -> None:
        """Forget the state of earlier steps; call it after a warm-up and before the process group ends."""

    def state(self) -> dict[str, Tensor]:
        """Return the tensors in memory on which later steps depend."""
        return {}


class OwnGradient(GradientSum):
    """Estimates the sum without communication, by this rank's own gradient times the number of ranks."""

    def begin(self, bucket: Bucket, factor: Tensor | None) -> None:
        """Multiply by the number of ranks; see `GradientSum`."""
        scale_in_place(bucket.gradients.mul_(distributed.get_world_size()), factor)


class ElementSum(GradientSum):
    """Sums every element in the gradients' own format; the exchange determines where the result is."""

    def __init__(self, options: Communication, exchange: Exchange) -> None:
        super().__init__(options, exchange)
        self._waits: list[Wait] = []

    def begin(self, bucket: Bucket, factor: Tensor | None) -> None:
        """Start the exchange of the bucket; see `GradientSum`."""
        self._waits.append(self.start(bucket.number, bucket.gradients, factor))

    def finish(self) -> None:
        """Wait for the exchanges; see `GradientSum`."""
        waits = self._waits
        self._waits = []
        for wait in waits:
            wait()

    def start(self, number: int, buffer: Tensor, factor: Tensor | None) -> Wait:
        """Start the sum of a buffer in place; buffers that are summed at the same time need different numbers."""
        del number
        return self._exchange.sum(scale_in_place(buffer, factor))


class HalfSum(ElementSum):
    """Sums every element in half the bytes.

    For fp16, gradients are first divided by the number of ranks so that sums stay in range, as in torch's fp16 hook.
    For bf16, torch's hook can't be used because it refuses gloo. Conversion moves 6 bytes for each parameter before the
    sum and 6 after it: 1.4 ms of BERT-Large's step on an H100 (computed). With a sharded optimizer, only a rank's slice
    is converted back, which makes 0.8 ms in all on eight GPUs.
    """

    def __init__(self, options: Communication, exchange: Exchange) -> None:
        super().__init__(options, exchange)
        if options.compression == "fp16":
            self._format = torch.float16
            self._divisor = distributed.get_world_size()
        else:
            self._format = torch.bfloat16
            self._divisor = 1
        # kept between steps, because torch's watchdog frees a collective's buffer late
        self._halves: dict[int, Tensor] = {}

    @staticmethod
    def bytes_per_step(sizes: SummedSizes) -> int:
        """Return half the bytes of fp32; see `GradientSum`."""
        return GradientSum.bytes_per_step(sizes) // 2

    def start(self, number: int, buffer: Tensor, factor: Tensor | None) -> Wait:
        """Round in the same pass in which clipping is applied, and start the sum; see `ElementSum`."""
        half = self._half_of(number, buffer)
        if factor is None:
            torch.div(buffer, self._divisor, out=half)
        else:
            torch.mul(buffer, factor / self._divisor, out=half)
        return self._restoring(self._exchange.sum(half), buffer, half)

    def _half_of(self, number: int, buffer: Tensor) -> Tensor:
        half = self._halves.get(number)
        if half is None:
            half = torch.empty_like(buffer, dtype=self._format)
            self._halves[number] = half
        return half

    def _restoring(self, wait: Wait, buffer: Tensor, half: Tensor) -> Wait:
        """Return a function that waits for the sum in `half` and writes it to the buffer."""
        my_slice = slice_of(buffer, self._exchange.place, self._exchange.slices)
        my_half = slice_of(half, self._exchange.place, self._exchange.slices)

        def restore() -> None:
            wait()
            my_slice.copy_(my_half)
            if self._divisor != 1:
                my_slice.mul_(self._divisor)

        return restore


class KeptHalfSum(HalfSum):
    """Leaves the sum in bf16, where the norm and the optimizer read it; this moves 10 bytes less for each parameter."""

    def __init__(self, options: Communication, exchange: Exchange, buckets: Buckets) -> None:
        """Take the buckets; the sum doesn't change their fp32 gradients."""
        super().__init__(options, exchange)
        assert options.compression == "bf16", "sums in fp16 must be multiplied by the number of ranks"
        self.summed: dict[Tensor, Tensor] = {}
        """For each parameter, its part of the sums."""
        for bucket in buckets.all:
            half = self._half_of(bucket.number, bucket.gradients)
            self.summed.update(zip(bucket.parameters, bucket.views_of(half), strict=True))

    def _restoring(self, wait: Wait, buffer: Tensor, half: Tensor) -> Wait:
        del buffer, half
        return wait


def scale_in_place(buffer: Tensor, factor: Tensor | None) -> Tensor:
    """Multiply a buffer in place by a factor (None means 1), and return it."""
    return buffer if factor is None else buffer.mul_(factor)


ELEMENT_SUMS: dict[Compression, type[ElementSum]] = {"none": ElementSum, "fp16": HalfSum, "bf16": HalfSum}
"""The sums that send every element, so that any exchange can carry them."""
_OTHER_SUMS: dict[Compression, str] = {
    "int8": "bertbench.gradients.error_feedback:Int8Sum",
    "topk": "bertbench.gradients.error_feedback:TopKSum",
    "powersgd": "bertbench.gradients.powersgd:PowerSgdSum",
}


def sum_class(compression: Compression) -> type[GradientSum]:
    """Return the class that sums with a compression."""
    if compression in ELEMENT_SUMS:
        return ELEMENT_SUMS[compression]
    compressed_sum: type[GradientSum] = resolve_name(_OTHER_SUMS[compression])
    return compressed_sum


def bytes_per_step(
    options: Communication,
    shapes: Sequence[Sequence[int]],
    bucket_elements: Sequence[int],
    ranks: int,
    sync: Sync = Sync(),  # noqa: B008 - immutable
) -> int:
    """Return the bytes that one rank contributes to a step's sums of buckets with these numbers of elements.

    Ranks that train independently send weights instead of gradients; their bytes are spread over the steps between two
    outer steps.
    """
    if sync.outer is not None:
        return -(-GRADIENT_BYTES * sum(bucket_elements) // sync.every_steps)
    sizes = SummedSizes(options, shapes, bucket_elements, ranks)
    return sum_class(options.compression).bytes_per_step(sizes)
