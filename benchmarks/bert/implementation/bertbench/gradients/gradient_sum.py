"""Sum buckets of gradients over the ranks: the interface, the sums of every element, and the registry of all sums.

`begin` starts a bucket's sum during the backward pass, `finish` completes all of them. It is a sum, not torch's DDP's
mean: see clip.py. Compressed sums stand in error_feedback.py and powersgd.py, delayed ones in delayed.py: a new one
adds a class and an entry of the registry; a run loads only its own.
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
    """What decides how many bytes one rank contributes to a step's sums."""

    options: Communication
    shapes: Sequence[Sequence[int]]
    """Shapes of all parameters."""
    bucket_elements: Sequence[int]
    """Elements of each bucket."""
    ranks: int


class GradientSum:
    """Sums buckets over the ranks; this class keeps no state between steps."""

    def __init__(self, options: Communication, exchange: Exchange) -> None:
        """Take the options of every sum, and the exchange that carries sums of every element."""
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
        """Complete the sums begun since the last call, in their order."""

    def reset(self) -> None:
        """Forget the state of earlier steps; call it after a warm-up and before the process group ends."""

    def state(self) -> dict[str, Tensor]:
        """Return the tensors in memory on which later steps depend."""
        return {}


class OwnGradient(GradientSum):
    """Estimate the sum without communication: this rank's own gradient times the number of ranks."""

    def begin(self, bucket: Bucket, factor: Tensor | None) -> None:
        """Multiply by the number of ranks; see `GradientSum`."""
        scale_in_place(bucket.gradients.mul_(distributed.get_world_size()), factor)


class ElementSum(GradientSum):
    """Sum every element in the gradients' own format; the result is where the exchange leaves it."""

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
        """Start the sum of a buffer in place; buffers that are on their way at once need different numbers."""
        del number
        return self._exchange.sum(scale_in_place(buffer, factor))


class HalfSum(ElementSum):
    """Sum every element in half the bytes.

    fp16 is divided by the number of ranks first, so that sums stay in range, like torch's fp16 hook; torch's bf16 hook
    refuses gloo. It moves 6 bytes a parameter before the sum, and 6 after it: 1.4 ms of BERT-Large's step on an H100
    (computed). With a sharded optimizer, those after it are a rank's slice alone, 0.8 ms in all on eight GPUs.
    """

    def __init__(self, options: Communication, exchange: Exchange) -> None:
        super().__init__(options, exchange)
        if options.compression == "fp16":
            self._format = torch.float16
            self._divisor = distributed.get_world_size()
        else:
            self._format = torch.bfloat16
            self._divisor = 1
        # kept between steps: torch's watchdog frees a collective's buffer late
        self._halves: dict[int, Tensor] = {}

    @staticmethod
    def bytes_per_step(sizes: SummedSizes) -> int:
        """Return half the bytes of fp32; see `GradientSum`."""
        return GradientSum.bytes_per_step(sizes) // 2

    def start(self, number: int, buffer: Tensor, factor: Tensor | None) -> Wait:
        """Round once, since clipping needs no pass of its own, and start the sum; see `ElementSum`."""
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
        """Return what waits for the sum in `half` and writes it to the buffer."""
        my_slice = slice_of(buffer, self._exchange.place, self._exchange.slices)
        my_half = slice_of(half, self._exchange.place, self._exchange.slices)

        def restore() -> None:
            wait()
            my_slice.copy_(my_half)
            if self._divisor != 1:
                my_slice.mul_(self._divisor)

        return restore


class KeptHalfSum(HalfSum):
    """Leave the sum in bf16, for a norm and an optimizer that read it there: 10 bytes a parameter less to move."""

    def __init__(self, options: Communication, exchange: Exchange, buckets: Buckets) -> None:
        """Take the buckets, whose gradients in fp32 the sum leaves as they are."""
        super().__init__(options, exchange)
        assert options.compression == "bf16", "fp16 sums of divided gradients are still to be multiplied"
        self.summed: dict[Tensor, Tensor] = {}
        """The part of each parameter in the sums, by parameter."""
        for bucket in buckets.all:
            half = self._half_of(bucket.number, bucket.gradients)
            self.summed.update(zip(bucket.parameters, bucket.views_of(half), strict=True))

    def _restoring(self, wait: Wait, buffer: Tensor, half: Tensor) -> Wait:
        del buffer, half
        return wait


def scale_in_place(buffer: Tensor, factor: Tensor | None) -> Tensor:
    """Multiply a buffer in place by a factor, None for 1, and return it."""
    return buffer if factor is None else buffer.mul_(factor)


ELEMENT_SUMS: dict[Compression, type[ElementSum]] = {"none": ElementSum, "fp16": HalfSum, "bf16": HalfSum}
"""Those that send every element, so that any exchange can carry them."""
_OTHER_SUMS: dict[Compression, str] = {
    "int8": "bertbench.gradients.error_feedback:Int8Sum",
    "topk": "bertbench.gradients.error_feedback:TopKSum",
    "powersgd": "bertbench.gradients.powersgd:PowerSgdSum",
}


def sum_class(compression: Compression) -> type[GradientSum]:
    """Return the class of a compression's sum."""
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
    """Return the bytes that one rank contributes to a step's sums of buckets of these elements.

    Ranks that train alone send weights instead of gradients, spread over the outer interval.
    """
    if sync.outer is not None:
        return -(-GRADIENT_BYTES * sum(bucket_elements) // sync.every_steps)
    sizes = SummedSizes(options, shapes, bucket_elements, ranks)
    return sum_class(options.compression).bytes_per_step(sizes)
