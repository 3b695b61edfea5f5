"""Estimate samples to converge, from published runs with the same hyper-parameters or else from reference points."""

import json
import math
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from statistics import mean, median
from typing import NamedTuple

import numpy as np
from mlperf_logging import rcp_checker

from bertbench.common.published_results import PublishedResult

_RULESET = "5.0.0"  # the newest one that contains BERT
_CLIPPING = "their logs don't say whether they clipped before or after the all-reduce"
_SAME_BATCH = 0.01  # 16,384 on 1,024 GPUs and 16,416 on 1,368 count as one batch


class Samples(NamedTuple):
    """A number of training samples, and its source."""

    number: float
    source: str
    interpolated: bool = False
    """Whether the number is interpolated between reference convergence points, which ignores hyper-parameters."""


@cache
def reference_points() -> dict[int, tuple[float, dict[str, float]]]:
    """Return MLPerf's reference convergence points by global batch: mean samples to converge, and hyper-parameters.

    The mean leaves out the highest and the lowest. The points were measured with the reference implementation and come
    from mlperf-logging.
    """
    folder = Path(rcp_checker.__file__).parent
    points = json.loads((folder / f"training_{_RULESET}" / "rcps_bert.json").read_text(encoding="utf-8"))
    return {
        point["BS"]: (mean(sorted(point["Epochs to converge"])[1:-1]), point["Hyperparams"])
        for point in points.values()
    }


def samples_to_converge(
    global_batch_size: int, hyper_parameters: tuple[float, ...], published: Iterable[PublishedResult]
) -> Samples:
    """Return the median of the published runs with this batch (within 1 %) and these hyper-parameters (`Published`).

    If there are no such runs, interpolate the reference convergence points by batch.
    """
    same = [
        row.samples_to_converge
        for row in published
        if row.hyper_parameters
        and math.isclose(row.global_batch_size, global_batch_size, rel_tol=_SAME_BATCH)
        and all(map(_nearly_equal, row.hyper_parameters, hyper_parameters))
    ]
    if same:
        source = f"median of {len(same)} published results with these hyper-parameters; {_CLIPPING}"
        return Samples(median(same), source)
    points = sorted((batch, mean_samples) for batch, (mean_samples, _) in reference_points().items())
    batches, means = zip(*points, strict=True)
    return Samples(
        float(np.interp(global_batch_size, batches, means)),
        "interpolated between reference convergence points (of LAMB, clipped before the all-reduce)",
        interpolated=True,
    )


def _nearly_equal(published: float, asked: float) -> bool:
    return math.isclose(published, asked, rel_tol=1e-4)  # numpy's allclose takes 30 times as long
