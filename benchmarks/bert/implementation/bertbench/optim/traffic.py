"""Say how large buckets of gradients are: plain arithmetic, without torch."""

GRADIENT_BYTES = 4  # fp32
_MIB = 2**20
_FIRST_BUCKET_MIB, _BUCKET_MIB = 1.0, 25.0  # DDP's: a small bucket first, so that communication starts early


def bucket_limits(bucket_mb: float | None) -> list[int]:
    """Return the bytes that close the first buckets of a gradient, the last number for all further ones."""
    limits = [_FIRST_BUCKET_MIB, _BUCKET_MIB] if bucket_mb is None else [bucket_mb]
    return [int(limit * _MIB) for limit in limits]
