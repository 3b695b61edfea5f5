"""Count the buckets of a gradient for a forecast."""

from collections.abc import Iterable

from bertbench.config.optimizer import GRADIENT_BYTES, bucket_limits


def bucket_count(elements: Iterable[int], bucket_mb: float | None) -> int:
    """Return the number of buckets of gradients with these elements, in the order of reduction.

    As in DDP, the gradient that reaches a bucket's limit is its last.
    """
    limits, count, filled = bucket_limits(bucket_mb), 0, 0
    for size in elements:
        filled += GRADIENT_BYTES * size
        if filled >= limits[min(count, len(limits) - 1)]:
            count, filled = count + 1, 0
    return count + (filled > 0)
