"""Count the bytes that ranks send in a step: plain arithmetic, without torch."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bertbench.optim.options import ClipMode, Compression, OuterOptions, ReduceOptions

_GRADIENT_BYTES = 4  # fp32
_SCALE_BYTES = 4  # fp32
_PLACED_BYTES = 4 + 4  # fp32 and its place
_POWERSGD_LEAST_SAVING = 2  # torch's hook compresses a tensor only if its factors take less than half its size


_MIB = 2**20
_FIRST_BUCKET_MIB, _BUCKET_MIB = 1.0, 25.0  # DDP's: a small bucket first, so that communication starts early

INT8_BLOCK = 512
"""Elements that share a scale in int8."""


def int8_slice(elements: int, ranks: int) -> int:
    """Return the elements of each rank's slice of a bucket, which int8 sums there."""
    return -(-elements // ranks)


def topk_elements(elements: int, share: float) -> int:
    """Return how many elements of a bucket top-k sends: at least one."""
    return max(1, math.ceil(share * elements))


def bucket_limits(bucket_mb: float | None) -> list[int]:
    """Return the bytes that close the first buckets of a gradient, the last number for all further ones."""
    limits = [_FIRST_BUCKET_MIB, _BUCKET_MIB] if bucket_mb is None else [bucket_mb]
    return [int(limit * _MIB) for limit in limits]


def bucket_count(elements: Iterable[int], bucket_mb: float | None) -> int:
    """Return the number of buckets of gradients with these elements, in the order of reduction.

    As in DDP, the gradient that reaches a bucket's limit is its last.
    """
    limits, count, filled = bucket_limits(bucket_mb), 0, 0
    for size in elements:
        filled += _GRADIENT_BYTES * size
        if filled >= limits[min(count, len(limits) - 1)]:
            count, filled = count + 1, 0
    return count + (filled > 0)


def bytes_per_step(
    shapes: Iterable[Sequence[int]],
    options: ReduceOptions,
    bucket_elements: Sequence[int] = (),
    ranks: int = 1,
    outer: OuterOptions | None = None,
) -> int:
    """Return the bytes that one rank contributes to a step's sums, for parameters of these shapes in these buckets.

    PowerSGD: once it has started. int8: a byte an element and 4 a block, for each of `ranks` slices. Top-k: 4 for an
    element and 4 for its place. With `outer`, ranks send weights instead of gradients, spread over the outer interval.
    """
    if outer is not None:
        return -(-_GRADIENT_BYTES * sum(math.prod(shape) for shape in shapes) // outer.every_steps)
    if options.compression == "int8":
        slices = [int8_slice(elements, ranks) for elements in bucket_elements]
        return ranks * sum(length + _SCALE_BYTES * -(-length // INT8_BLOCK) for length in slices)
    if options.compression == "topk":
        return _PLACED_BYTES * sum(topk_elements(elements, options.topk_share) for elements in bucket_elements)
    if options.compression == "powersgd":
        return _GRADIENT_BYTES * sum(_powersgd_elements(shape, options.powersgd_rank) for shape in shapes)
    width = _GRADIENT_BYTES if options.compression == "none" else _GRADIENT_BYTES // 2
    return width * sum(math.prod(shape) for shape in shapes)


def carried_bytes(
    parameters: int, options: ReduceOptions, outer: OuterOptions | None, delay_steps: int, ranks: int
) -> int:
    """Return the bytes that a rank keeps between steps besides weights, gradients and optimizer state.

    With local updates, a rank keeps the weights of the last outer step and its velocity; with delayed gradients, a ring
    of buffers; with int8 and top-k, the errors.
    """
    copies = 0.0
    if outer is not None:
        copies = 2 if outer.momentum else 1
    elif delay_steps:
        copies = delay_steps + 1
    elif options.compression in ("int8", "topk"):
        copies = 1 + (1 / ranks if options.compression == "int8" else 0)
    return round(_GRADIENT_BYTES * parameters * copies)


def link_bytes_per_step(
    handed_over: int, parameters: int, ranks: int, sharded: bool, compression: Compression = "none"
) -> int:
    """Return the bytes that one rank sends in a step with `handed_over` bytes in its sums, without buckets' padding.

    A ring all-reduce of n bytes over R ranks sends 2 (R - 1) / R n over each link, a reduce-scatter or an all-gather
    half of that: with sliced optimizer state, gradients take the one and fp32 weights the other. int8's all-to-all and
    all-gather send as much as a ring; top-k's all-gather forwards every rank's contribution.
    """
    if compression == "topk":
        return (ranks - 1) * handed_over
    gathered = _GRADIENT_BYTES * parameters if sharded else handed_over
    return (ranks - 1) * (handed_over + gathered) // ranks


def _powersgd_elements(shape: Sequence[int], rank: int) -> int:
    """Count the elements of an n x m matrix's factors, n x r and r x m; further dimensions count into m."""
    rows, whole = shape[0], math.prod(shape)
    columns = whole // rows
    factors = (rows + columns) * min(rows, columns, rank)
    return factors if factors * _POWERSGD_LEAST_SAVING < whole else whole


@dataclass(frozen=True)
class Communication:
    """How a run computes, sends and applies gradients."""

    clip: ClipMode
    compression: Compression
    bucket_elements: tuple[int, ...]
    """Elements of each bucket, in the order of reduction."""
    bytes_per_step: int
    """Bytes that one rank contributes."""
    model_arithmetic: str
    optimizer_arithmetic: str
    sync: str = "every_step"
    """`sync.method`; with local updates, `bytes_per_step` is a step's share of the outer step."""

    transport: str = "collectives"
    """`collectives` of torch, or `shared memory` of ranks on one machine."""

    def text(self) -> str:
        """Return all of it in a line."""
        sizes = [_GRADIENT_BYTES * elements / 2**20 for elements in self.bucket_elements]
        return (
            f"gradients: {len(sizes)} buckets of {min(sizes):.1f} to {max(sizes):.1f} MiB, clip {self.clip}, "
            f"sync {self.sync}, compression {self.compression}, {self.bytes_per_step:,} bytes a rank and step by "
            f"{self.transport}; "
            f"model: {self.model_arithmetic}; optimizer: {self.optimizer_arithmetic}"
        )
