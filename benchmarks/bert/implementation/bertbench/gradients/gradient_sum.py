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
from bertbench.gradients.buckets import Bucket
from bertbench.gradients.exchange import Exchange, Wait, slice_of


class Handed(NamedTuple):
    """What decides how many bytes one rank hands to a step's sums."""

    options: Communication
    shapes: Sequence[Sequence[int]]
    """Of all parameters."""
    buckets: Sequence[int]
    """Elements of each."""
    ranks: int


class GradientSum:
    """Sums buckets over the ranks; this class keeps no state between steps."""

    def __init__(self, options: Communication, exchange: Exchange) -> None:
        """Take the options of every sum, and the exchange that carries sums of every element."""
        self._options, self._exchange = options, exchange

    @staticmethod
    def bytes_per_step(handed: Handed) -> int:
        """Return the bytes that one rank contributes to a step's sums."""
        return GRADIENT_BYTES * sum(handed.buckets)

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
        """See `GradientSum`."""
        scaled(bucket.gradients.mul_(distributed.get_world_size()), factor)


class ElementSum(GradientSum):
    """Sum every element in the gradients' own format; the result is where the exchange leaves it."""

    def __init__(self, options: Communication, exchange: Exchange) -> None:
        super().__init__(options, exchange)
        self._begun: list[Wait] = []

    def begin(self, bucket: Bucket, factor: Tensor | None) -> None:
        """See `GradientSum`."""
        self._begun.append(self.start(bucket.number, bucket.gradients, factor))

    def finish(self) -> None:
        """See `GradientSum`."""
        begun, self._begun = self._begun, []
        for wait in begun:
            wait()

    def start(self, number: int, buffer: Tensor, factor: Tensor | None) -> Wait:
        """Start the sum of a buffer in place; buffers that are on their way at once need different numbers."""
        del number
        return self._exchange.sum(scaled(buffer, factor))


class HalfSum(ElementSum):
    """Sum every element in half the bytes.

    fp16 is divided by the number of ranks first, so that sums stay in range, like torch's fp16 hook; torch's bf16 hook
    refuses gloo.
    """

    def __init__(self, options: Communication, exchange: Exchange) -> None:
        super().__init__(options, exchange)
        fp16 = options.compression == "fp16"
        self._wire = torch.float16 if fp16 else torch.bfloat16
        self._divisor = distributed.get_world_size() if fp16 else 1
        # kept between steps: torch's watchdog frees a collective's buffer late
        self._halves: dict[int, Tensor] = {}

    @staticmethod
    def bytes_per_step(handed: Handed) -> int:
        """See `GradientSum`."""
        return GradientSum.bytes_per_step(handed) // 2

    def start(self, number: int, buffer: Tensor, factor: Tensor | None) -> Wait:
        """See `ElementSum`. Rounds once: clipping needs no pass of its own."""
        half = self._halves.get(number)
        if half is None:
            half = self._halves[number] = torch.empty_like(buffer, dtype=self._wire)
        if factor is None:
            torch.div(buffer, self._divisor, out=half)
        else:
            torch.mul(buffer, factor / self._divisor, out=half)
        wait = self._exchange.sum(half)
        own, own_half = (slice_of(flat, self._exchange.place, self._exchange.slices) for flat in (buffer, half))

        def restore() -> None:
            wait()
            own.copy_(own_half)
            if self._divisor != 1:
                own.mul_(self._divisor)

        return restore


def scaled(buffer: Tensor, factor: Tensor | None) -> Tensor:
    """Multiply a buffer in place by a factor; None is 1."""
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
    found: type[GradientSum] = ELEMENT_SUMS.get(compression) or resolve_name(_OTHER_SUMS[compression])
    return found


def bytes_per_step(
    options: Communication,
    shapes: Sequence[Sequence[int]],
    buckets: Sequence[int],
    ranks: int,
    sync: Sync = Sync(),  # noqa: B008 - immutable
) -> int:
    """Return the bytes that one rank contributes to a step's sums of buckets of these elements.

    Ranks that train alone send weights instead of gradients, spread over the outer interval.
    """
    if sync.outer is not None:
        return -(-GRADIENT_BYTES * sum(buckets) // sync.every_steps)
    return sum_class(options.compression).bytes_per_step(Handed(options, shapes, buckets, ranks))
