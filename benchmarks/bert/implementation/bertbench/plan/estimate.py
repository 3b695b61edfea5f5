"""Estimate a run's time to train from published results: samples to the target, divided by samples a second.

It models no machine. The samples are those of published runs with the same batch and hyper-parameters, or else of
MLPerf's reference convergence point nearest in batch. The rate is that of the published result nearest to the run: on
the same model of accelerator, with the nearest number of accelerators and batch per accelerator.

It doesn't know the user's software, network or settings: balance, clipping, compression and precision don't change it.
"""

import json
import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from statistics import mean, median
from typing import Any, NamedTuple

from mlperf_logging import rcp_checker

from bertbench.common.errors import ConfigError
from bertbench.common.published_results import PublishedResult, published_results
from bertbench.config import System
from bertbench.machine.gpu_peaks import gpu_kind
from bertbench.model.shape import BertShape

MEDIAN_ERROR = 0.06
"""Half of the published results differ by less from estimates that leave out all results of their submitter."""
WORST_RATIO = 2.6
"""The longer of estimated and published time, divided by the shorter, in the worst case. The test
`tests/plan/test_estimate.py` computes both numbers."""
OUR_SHARE = 0.75
"""Our rate over NVIDIA's published one, on an H100 with 96 samples. The test
`tests/plan/test_estimate.py` computes it from the record."""
_RULESET = "5.0.0"  # the newest one that contains BERT
_SAME_BATCH = 0.01  # 16,384 on 1,024 GPUs and 16,416 on 1,368 count as one batch
_SAME_VALUE = 1e-4  # numpy's allclose takes 30 times as long as math.isclose


class Samples(NamedTuple):
    """A number of training samples to the target, and its source."""

    number: float
    source: str


class Rate(NamedTuple):
    """Samples a second over a whole run, and the published result from which they follow."""

    samples_per_s: float
    result: PublishedResult

    @property
    def source(self) -> str:
        """Return the result in words."""
        result = self.result
        return (
            f"{result.submitter}, round {result.rounds.replace(';', ', ')}, {result.system}: {result.accelerators:,} x "
            f"{result.accelerator}, batch {result.global_batch_size:,}"
        )


class Estimate(NamedTuple):
    """What published results say about a system's run."""

    system: System
    samples: Samples
    rate: Rate | None
    """None if nobody published a result on this model of accelerator."""

    @property
    def minutes(self) -> float | None:
        """Return the minutes to the target."""
        return None if self.rate is None else self.samples.number / self.rate.samples_per_s / 60

    @property
    def step_ms(self) -> float | None:
        """Return the milliseconds of a step at the rate; evaluations and start-up are included."""
        return None if self.rate is None else 1e3 * self.system.global_batch_size / self.rate.samples_per_s


def estimate_run(system: System) -> Estimate:
    """Estimate a system's run. Raises ConfigError if its model isn't BERT-Large, which all published results train."""
    if not trains_bert_large(system):
        raise ConfigError(
            f"{system.name}: its model isn't BERT-Large, which all published results train, so there is no estimate; "
            f"`bertbench train {system.argument} --smoke` shows samples/s, and choose a dgx system for an estimate "
            "(`bertbench config list` lists them)"
        )
    published = published_results()
    batch = system.global_batch_size
    return Estimate(
        system,
        samples_to_converge(batch, hyper_parameters(system), published),
        rate_of(system.hardware.accelerator_model_name, system.world_size, batch, published),
    )


def trains_bert_large(system: System) -> bool:
    """Return whether a system trains BERT-Large."""
    return system.model.shape() == BertShape()


def hyper_parameters(system: System) -> tuple[float, ...]:
    """Return the hyper-parameters by which published results are compared, in their order (published_results.py)."""
    optimizer, schedule = system.optimizer, system.schedule
    return (
        optimizer.learning_rate,
        optimizer.beta1,
        optimizer.beta2,
        schedule.max_steps,
        schedule.warmup_steps,
        schedule.start_warmup_step,
    )


def samples_to_converge(batch: int, values: tuple[float, ...], published: Sequence[PublishedResult]) -> Samples:
    """Return the median of the `published` results with this batch (within 1 %) and these hyper-parameters.

    If there are none, return the samples of the reference convergence point nearest in batch, by ratio.
    """
    same = [
        result.samples_to_converge
        for result in published
        if result.hyper_parameters
        and math.isclose(result.global_batch_size, batch, rel_tol=_SAME_BATCH)
        and all(map(_nearly_equal, result.hyper_parameters, values))
    ]
    if same:
        results = "result" if len(same) == 1 else "results"
        return Samples(median(same), f"median of {len(same)} published {results} with this batch and hyper-parameters")
    points = reference_points()
    nearest = min(points, key=lambda point: abs(math.log(point / batch)))
    samples, _ = points[nearest]
    return Samples(
        samples,
        f"MLPerf's reference convergence point of batch {nearest:,} (LAMB); no published result has this batch and "
        "these hyper-parameters",
    )


def _nearly_equal(published: float, asked: float) -> bool:
    return math.isclose(published, asked, rel_tol=_SAME_VALUE)


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


def rate_of(accelerator: str, number: int, batch: int, published: Sequence[PublishedResult]) -> Rate | None:
    """Return the rate of a global batch on a number of accelerators; None without a published result on this model.

    A step takes as long as in the nearest result. It takes longer if an accelerator has more samples than there, in
    proportion, but not shorter if it has fewer: then what doesn't depend on the batch, such as sums of gradients,
    takes most of a step.
    """
    result = _nearest(accelerator, number, batch, published)
    if result is None:
        return None
    assert result.accelerators
    results_step_s = result.seconds * result.global_batch_size / result.samples_to_converge
    more_samples = (batch / number) / (result.global_batch_size / result.accelerators)
    return Rate(batch / (results_step_s * max(1.0, more_samples)), result)


def _nearest(accelerator: str, number: int, batch: int, published: Sequence[PublishedResult]) -> PublishedResult | None:
    """Return the result on this model nearest in accelerators and in batch per accelerator, by the sum of their ratios.

    If several are equally near, return the one with the median rate.
    """
    distances: dict[float, list[PublishedResult]] = {}
    for result in published:
        if result.accelerators and _model(result.accelerator) == _model(accelerator):
            ratio = number / result.accelerators
            batch_ratio = batch / result.global_batch_size / ratio
            distance = round(abs(math.log(ratio)) + abs(math.log(batch_ratio)), 6)
            distances.setdefault(distance, []).append(result)
    if not distances:
        return None
    nearest = sorted(distances[min(distances)], key=lambda result: result.samples_to_converge / result.seconds)
    return nearest[(len(nearest) - 1) // 2]


def _model(accelerator: str) -> str:
    """Return the kind of a GPU whose data sheet we know, or else the accelerator's name."""
    return gpu_kind(accelerator) or accelerator


def estimate_json(estimate: Estimate) -> dict[str, Any]:
    """Return an estimate for --json."""
    system, rate = estimate.system, estimate.rate
    return {
        "system": system.name,
        "gpus": system.world_size,
        "global_batch_size": system.global_batch_size,
        "samples": round(estimate.samples.number),
        "samples_source": estimate.samples.source,
        "samples_per_s": None if rate is None else round(rate.samples_per_s, 1),
        "rate_source": None if rate is None else rate.source,
        "expected_minutes": None if estimate.minutes is None else round(estimate.minutes, 3),
        "median_error": MEDIAN_ERROR,
        "worst_ratio": WORST_RATIO,
        "step_ms": None if estimate.step_ms is None else round(estimate.step_ms, 2),
    }


def estimate_lines(estimate: Estimate) -> list[str]:
    """Return an estimate as text: a line for each subject."""
    system, rate = estimate.system, estimate.rate
    unnamed = "an unnamed GPU" if system.launch.device == "cuda" else "CPU rank"
    accelerator = system.hardware.accelerator_model_name or unnamed
    lines = [
        f"{system.name}: {system.world_size:,} x {accelerator}, global batch {system.global_batch_size:,}",
        f"samples  {estimate.samples.number:,.0f} to the target: {estimate.samples.source}",
    ]
    if rate is None:
        lines.append(
            f"rate     unknown: no published result on {accelerator}; set hardware.accelerator_model_name, or measure "
            f"samples/s by `bertbench train {system.argument} --smoke` and divide the samples by that"
        )
    else:
        lines += [
            f"rate     {rate.samples_per_s:,.0f} samples/s, after {rate.source}",
            f"time     {estimate.minutes:.3g} min",
            f"error    {100 * MEDIAN_ERROR:.0f} % (median) to {WORST_RATIO:g} times (worst): estimates of published "
            "results that leave out all results of their submitter",
            f"step     {estimate.step_ms:.1f} ms at that rate, evaluations and start-up included",
            "ours     unknown: that rate is other programs'; on one H100, bertbench trained "
            f"{OUR_SHARE:g} times as many samples a second as NVIDIA published, and ran on no other GPU",
        ]
    return lines
