"""What travels between ranks in a step: plain arithmetic, without torch."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bertbench.optim.options import ClipMode, Compression, ReduceOptions

_GRADIENT_BYTES = 4  # fp32
_POWERSGD_LEAST_SAVING = 2  # torch's hook leaves a tensor alone unless its factors are less than half of it


def bytes_per_step(shapes: Iterable[Sequence[int]], options: ReduceOptions) -> int:
    """Bytes that one rank contributes to the sums of one step, for parameters of these shapes.

    PowerSGD: once it has started.
    """
    if options.compression == "powersgd":
        return _GRADIENT_BYTES * sum(_powersgd_elements(shape, options.powersgd_rank) for shape in shapes)
    width = _GRADIENT_BYTES if options.compression == "none" else _GRADIENT_BYTES // 2
    return width * sum(math.prod(shape) for shape in shapes)


def outer_bytes_per_step(shapes: Iterable[Sequence[int]], every_steps: int) -> int:
    """Return the bytes that one rank contributes per step to sums of weights of these shapes every so many steps."""
    return -(-_GRADIENT_BYTES * sum(math.prod(shape) for shape in shapes) // every_steps)


def link_bytes_per_step(handed_over: int, parameters: int, ranks: int, sharded: bool) -> int:
    """Return the bytes that one rank sends in a step if it hands `handed_over` to sums; filling of buckets left out.

    A ring all-reduce of n bytes over R ranks sends 2 (R - 1) / R n over each link, a reduce-scatter or an all-gather
    half of that: with sliced optimizer state, gradients take the one and fp32 weights the other.
    """
    gathered = _GRADIENT_BYTES * parameters if sharded else handed_over
    return (ranks - 1) * (handed_over + gathered) // ranks


def _powersgd_elements(shape: Sequence[int], rank: int) -> int:
    """An n x m matrix travels as factors n x r and r x m; what has more dimensions is n x the rest."""
    rows, whole = shape[0], math.prod(shape)
    columns = whole // rows
    factors = (rows + columns) * min(rows, columns, rank)
    return factors if factors * _POWERSGD_LEAST_SAVING < whole else whole


@dataclass(frozen=True)
class Communication:
    """How gradients of a run come about, travel and are used."""

    clip: ClipMode
    compression: Compression
    bucket_elements: tuple[int, ...]
    """Elements of each bucket, in the order in which they travel."""
    bytes_per_step: int
    """What one rank hands over."""
    model_arithmetic: str
    optimizer_arithmetic: str
    sync: str = "every_step"
    """`sync.method`; of ranks that train alone, `bytes_per_step` is their share of the outer step's."""

    def text(self) -> str:
        """All of it in a line."""
        sizes = [_GRADIENT_BYTES * elements / 2**20 for elements in self.bucket_elements]
        return (
            f"gradients: {len(sizes)} buckets of {min(sizes):.1f} to {max(sizes):.1f} MiB, clip {self.clip}, "
            f"sync {self.sync}, compression {self.compression}, {self.bytes_per_step:,} bytes a rank and step; "
            f"model: {self.model_arithmetic}; optimizer: {self.optimizer_arithmetic}"
        )
