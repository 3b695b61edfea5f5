"""Write forecasts as JSON and as a table, for `bertbench estimate`."""

from functools import cache
from typing import Any

from bertbench.plan.forecast import LIMITS, RunForecast


def forecast_json(forecast: RunForecast) -> dict[str, Any]:
    """Return a forecast for --json: times in minutes, terms in seconds."""
    return {
        "system": forecast.system.name,
        "gpu": forecast.gpu,
        "gpus": forecast.system.world_size,
        "global_batch_size": forecast.system.global_batch_size,
        "samples_to_converge": round(forecast.samples.number),
        "samples_source": forecast.samples.source,
        "predicted_min": round(forecast.minutes, 4),
        "expected_minutes": round(forecast.minutes, 3),
        "likely_min": round(forecast.range.middle_min, 4),
        "range_min": [round(forecast.range.low_min, 4), round(forecast.range.high_min, 4)],
        "range_source": forecast.range.source,
        "warnings": _warnings(forecast),
        "seconds": {part: round(value, 3) for part, value in vars(forecast.seconds).items()},
        "limit": forecast.seconds.limit,
    }


def forecast_lines(forecasts: list[RunForecast]) -> list[str]:
    """Return a table of forecasts; for a single forecast, also its terms and the sources of its numbers."""
    lines = [f"{'system':<20}{'GPUs':>6} {'GPU':<5}{'batch':>7}{'samples':>11}{'time to train':>24}  limited by"]
    for forecast in forecasts:
        system = forecast.system
        lines.append(
            f"{system.name:<20}{system.world_size:>6} {forecast.gpu:<5}{system.global_batch_size:>7}"
            f"{forecast.samples.number:>11,.0f}{forecast.range!s:>24}  {LIMITS[forecast.seconds.limit]}"
        )
    if len(forecasts) == 1:
        for part, value in vars(forecasts[0].seconds).items():
            lines.append(f"{part:>20}{value:>10.1f} s{100 * value / forecasts[0].seconds.total:>6.1f} %")
        lines.append(f"samples to converge: {forecasts[0].samples.source}")
        lines.append(f"time to train: the range covers 90 % of the forecast errors on {forecasts[0].range.source}")
    return lines + [
        f"warning: {forecast.system.name}: {warning}" for forecast in forecasts for warning in _warnings(forecast)
    ]


@cache
def _warnings(forecast: RunForecast) -> list[str]:
    """Return how the system differs from the calibration, and whether the batch fits."""
    from bertbench.plan.memory import capacity_gb, needed_gb  # noqa: PLC0415 - loads torch, which takes seconds

    system = forecast.system
    warnings = forecast.warnings
    needed = needed_gb(system)
    capacity = capacity_gb(system)
    if needed > capacity:
        warnings.append(
            f"batch {system.global_batch_size:,}: each GPU needs {needed:.0f} GB but has {capacity:g} GB, so the run "
            "would fail; raise data.gradient_accumulation_steps"
        )
    return warnings
