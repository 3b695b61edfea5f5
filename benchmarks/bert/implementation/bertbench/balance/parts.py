"""Split a rank's share of a step into the parts that it accumulates, and say how large the largest of a run is.

Shapes: P parts of several steps.
"""

from collections.abc import Sequence

import numpy as np

from bertbench.data.store.columns import Integers

LARGEST_DEVIATIONS = 4.0
"""Of a run's parts, in standard deviations above the mean: one part in 30,000 is larger."""


def in_parts(share: Integers, parts: int) -> list[Integers]:
    """Split a rank's share of a step as accumulation does; no part is empty, unless the share is."""
    return np.array_split(share, max(1, min(parts, len(share))))


def largest_size(sizes: Sequence[float]) -> float:
    """Return the size of the largest part of a run, some of whose parts have these sizes."""
    sizes_P = np.array(sizes, np.float64)
    return float(max(sizes_P.mean() + LARGEST_DEVIATIONS * sizes_P.std(), sizes_P.max()))
