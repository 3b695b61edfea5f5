"""Split a rank's share of a step into accumulation parts, and estimate the size of a run's largest part.

Shapes: P parts, taken from several steps.
"""

from collections.abc import Sequence

import numpy as np

from bertbench.data.store.columns import Integers

_LARGEST_DEVIATIONS = 4.0
"""A run's largest part is taken to be this many standard deviations above the mean; one part in 30,000 is larger."""


def in_parts(share: Integers, parts: int) -> list[Integers]:
    """Split a rank's share of a step as gradient accumulation does. No part is empty, unless the share itself is."""
    return np.array_split(share, max(1, min(parts, len(share))))


def largest_size(sizes: Sequence[float]) -> float:
    """Estimate the size of a run's largest part from the sizes of some of its parts."""
    sizes_P = np.array(sizes, np.float64)
    return float(max(sizes_P.mean() + _LARGEST_DEVIATIONS * sizes_P.std(), sizes_P.max()))
