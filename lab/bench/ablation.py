"""`bertbench lab ablation`: compute the seconds that each method of arXiv 2402.02447 adds or saves on 1,024 A100s.

Each row is a forecast of `dgxa100_n128_open` with one method changed, as `bertbench estimate --set` makes it.
"""

import argparse
from dataclasses import dataclass

from bertbench.cli.arguments import emit
from bertbench.config import load_system
from bertbench.plan.forecast import RunForecast, forecast_run
from lab.bench.harness import table_lines

_SYSTEM = "dgxa100_n128_open"
# NVIDIA's hyper-parameters for this batch, from round 2.0 on 4,096 A100s.
_LAMB = (
    "optimizer.name=lamb", "optimizer.learning_rate=0.0033", "optimizer.beta1=0.75", "optimizer.beta2=0.9",
    "schedule.max_steps=470", "schedule.warmup_steps=290", "schedule.start_warmup_step=-100",
    "schedule.decay_from=step_0",
)  # fmt: skip
_UNBALANCED = "data.balance=none"
_CLIPPED_BEFORE = "clip.mode=before"

CHANGES: dict[str, tuple[str, ...]] = {
    "all methods": (),
    "strata without sorting in the node": ("data.balance=stratified",),
    "sorting in the node without strata": ("data.balance=presort",),
    "no load balance": (_UNBALANCED,),
    "clipping before the all-reduce": (_CLIPPED_BEFORE,),
    "LAMB at the same batch": _LAMB,
    "none of the three, same batch": (_UNBALANCED, _CLIPPED_BEFORE, *_LAMB),
    "bertbench's `planned` balance": ("data.balance=planned",),
}
"""The settings of each row, by its name."""

_COLUMNS = {
    "changed": "{0.change}",
    "samples": "{0.samples:,.0f}",
    "step ms": "{0.step_ms:.1f}",
    "seconds": "{0.seconds:.1f}",
    "range": "{0.low_s:.0f} to {0.high_s:.0f}",
    "difference": "{0.more_s:+.1f}",
    "range of the difference": "{0.more_low_s:+.1f} to {0.more_high_s:+.1f}",
}
_NOTES = (
    "Computed, not measured. A range covers nine of ten forecast errors for published A100 results.",
    "The range of the difference assumes that the forecast of a row has the same relative error as that of the first.",
    "All rows assume the samples of published runs with the same optimizer, because no log compares clip modes.",
)


@dataclass(frozen=True)
class Ablation:
    """The forecast of a run with one method changed."""

    change: str
    settings: tuple[str, ...]
    samples: float
    """Samples to converge."""
    step_ms: float
    """The mean time of a step, including waiting."""
    seconds: float
    """The time to train, corrected by the median error of forecasts."""
    low_s: float
    high_s: float
    more_s: float
    """By how many seconds it is longer than with all methods."""
    more_low_s: float
    more_high_s: float


def ablations() -> list[Ablation]:
    """Return a row for each of `CHANGES`; the first has all methods of the paper."""
    forecasts = {change: forecast_run(load_system(_SYSTEM, settings)) for change, settings in CHANGES.items()}
    reference = next(iter(forecasts.values()))
    return [_ablation(change, forecast, reference) for change, forecast in forecasts.items()]


def _ablation(change: str, forecast: RunForecast, reference: RunForecast) -> Ablation:
    steps = forecast.samples.number / forecast.system.global_batch_size
    parts = forecast.seconds
    in_steps = parts.compute + parts.imbalance + parts.communication + parts.waiting
    least = 60 * (forecast.range.low_min - reference.range.low_min)
    most = 60 * (forecast.range.high_min - reference.range.high_min)
    return Ablation(
        change=change,
        settings=CHANGES[change],
        samples=forecast.samples.number,
        step_ms=1000 * in_steps / steps,
        seconds=60 * forecast.range.middle_min,
        low_s=60 * forecast.range.low_min,
        high_s=60 * forecast.range.high_min,
        more_s=60 * (forecast.range.middle_min - reference.range.middle_min),
        more_low_s=min(least, most),
        more_high_s=max(least, most),
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add no arguments."""


def run(arguments: argparse.Namespace) -> int:
    """Compute and print the table."""
    rows = ablations()
    emit(arguments.json, rows, *table_lines(rows, _COLUMNS), *_NOTES)
    return 0
