"""Sum buckets of gradients over the ranks: the interface, and the sums of every element in 32 or 16 bits.

`begin` starts a bucket's sum during the backward pass, and `finish` completes all sums. They are sums and not means as
in torch's DDP: see clip.py. A technique of a study can replace them by a sum of its own (training/technique.py).
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor, distributed

from bertbench.config.optimizer import GRADIENT_BYTES, Compression
from bertbench.gradients.buckets import Bucket, Buckets
from bertbench.gradients.exchange import Exchange, Wait, slice_of


class GradientSum:
    """Sums buckets over the ranks; this class keeps no state between steps."""

    transport = "collectives"
    """How the sums travel: by torch's `collectives`, or through `shared memory`."""
    keeps_a_single_one = False
    """Whether the sum of one rank's gradient alone is that gradient, to the bit."""
    summed: Mapping[Tensor, Tensor] | None = None
    """For each parameter, its part of the sums, if the buckets don't receive them."""

    def bytes_per_step(self, shapes: Sequence[Sequence[int]], bucket_elements: Sequence[int]) -> int:
        """Return the bytes that this rank contributes to a step's sums.

        `shapes` are those of the parameters, `bucket_elements` the number of elements in each bucket.
        """
        del shapes
        return GRADIENT_BYTES * sum(bucket_elements)

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


class ElementSum(GradientSum):
    """Sums every element in the gradients' own format; the exchange determines where the result is."""

    element_bytes: ClassVar[int] = GRADIENT_BYTES
    """The bytes in which an element is sent."""
    keeps_a_single_one = True

    def __init__(self, exchange: Exchange) -> None:
        """Take the exchange that carries the sums."""
        self._exchange = exchange
        self.transport = exchange.transport
        self._waits: list[Wait] = []

    def bytes_per_step(self, shapes: Sequence[Sequence[int]], bucket_elements: Sequence[int]) -> int:
        """Return the bytes of all elements; see `GradientSum`."""
        del shapes
        return self.element_bytes * sum(bucket_elements)

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

    Conversion moves 6 bytes for each parameter before the sum and 6 after it: 1.4 ms of BERT-Large's step on an H100
    (computed). With a sharded optimizer, only a rank's slice is converted back, which makes 0.8 ms in all on eight
    GPUs.
    """

    element_bytes = GRADIENT_BYTES // 2
    keeps_a_single_one = False
    _format: ClassVar[torch.dtype]
    _divisor = 1
    """What gradients are divided by before the sum; the sum is multiplied by it."""

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(exchange)
        # kept between steps, because torch's watchdog frees a collective's buffer late
        self._halves: dict[int, Tensor] = {}

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


class Bf16Sum(HalfSum):
    """Sums every element in bf16. torch's hook can't be used because it refuses gloo."""

    _format = torch.bfloat16


class Fp16Sum(HalfSum):
    """Sums every element in fp16.

    As in torch's fp16 hook, gradients are divided by the number of ranks, so that sums stay in range.
    """

    _format = torch.float16

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(exchange)
        self._divisor = distributed.get_world_size()


class KeptBf16Sum(Bf16Sum):
    """Leaves the sum in bf16, where the norm and the optimizer read it; this moves 10 bytes less for each parameter."""

    def __init__(self, exchange: Exchange, buckets: Buckets) -> None:
        """Take the buckets; the sum doesn't change their fp32 gradients."""
        super().__init__(exchange)
        summed: dict[Tensor, Tensor] = {}
        for bucket in buckets.all:
            half = self._half_of(bucket.number, bucket.gradients)
            summed.update(zip(bucket.parameters, bucket.views_of(half), strict=True))
        self.summed = summed

    def _restoring(self, wait: Wait, buffer: Tensor, half: Tensor) -> Wait:
        del buffer, half
        return wait


def scale_in_place(buffer: Tensor, factor: Tensor | None) -> Tensor:
    """Multiply a buffer in place by a factor (None means 1), and return it."""
    return buffer if factor is None else buffer.mul_(factor)


ELEMENT_SUMS: dict[Compression, type[ElementSum]] = {"none": ElementSum, "fp16": Fp16Sum, "bf16": Bf16Sum}
"""The sum for each value of `communication.compression`."""
