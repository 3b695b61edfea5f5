"""`bertbench predict`: forecast the time of a run, and measure forecast errors on published results."""

import argparse
from functools import cache
from statistics import median
from typing import Any

from bertbench.commands import add_flag, add_system_arguments, emit, say_unread, system_of
from bertbench.common.errors import ConfigError
from bertbench.config import load_system, system_names
from bertbench.config.load import gpu_card
from bertbench.plan.calibrate import GROUPS, Comparison, leave_out, other_results
from bertbench.plan.forecast import LIMITS, RunForecast, forecast_run, trains_bert_large
from bertbench.plan.forecast_errors import covered
from bertbench.plan.step_time import HARDWARE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the system and the kind of forecast."""
    parser.add_argument("system", nargs="?", metavar="SYSTEM", help="name or path of a system file (default: all)")
    parser.add_argument(
        "--gpu", "--gpu-model", type=_kind, choices=sorted(HARDWARE),
        help="forecast for this GPU instead of the system's own; its whole name will do",
    )  # fmt: skip
    kind = parser.add_mutually_exclusive_group()
    add_flag(
        kind,
        "--validate",
        "forecast published A100 results instead, each by a calibration without it, and print the errors",
    )
    add_flag(kind, "--layouts", "forecast a step and its memory in every layout of the system's GPUs; any size of BERT")
    add_flag(
        kind,
        "--from-kernels",
        "compute a step's time on 8 A100s, H100s and H200s from its kernels' bytes and launches, beside published "
        "results; needs Triton, takes a minute",
    )
    add_system_arguments(parser)


def _kind(name: str) -> str:
    """Return the kind of GPU of the card that `init --gpu-model` takes a name for, or the name itself."""
    return (gpu_card(name) or name).split("-")[0]


def run(arguments: argparse.Namespace) -> int:
    """Print forecasts, or their errors."""
    asked = arguments.system or arguments.gpu or arguments.overrides
    if (arguments.validate or arguments.from_kernels) and asked:
        raise ConfigError("--validate and --from-kernels forecast published results; leave SYSTEM, --gpu and --set out")
    if arguments.from_kernels:
        from bertbench.commands.roofline import print_roofline  # noqa: PLC0415 - loads torch

        return print_roofline(arguments.json)
    if arguments.layouts:
        from bertbench.plan.layouts import layout_listing  # noqa: PLC0415 - loads torch, which no other forecast needs

        if arguments.system is None or arguments.gpu:
            raise ConfigError("--layouts needs a SYSTEM and takes no --gpu; `bertbench systems` lists systems")
        system = system_of(arguments)
        say_unread(system, arguments)
        layouts, lines = layout_listing(system)
        emit(arguments.json, {"system": arguments.system, **layouts}, *lines)
    elif arguments.validate:
        _print_validation(arguments.json)
    else:
        forecasts = _forecasts(arguments)
        rows = [_as_json(one) for one in forecasts]
        emit(arguments.json, rows[0] if arguments.system else rows, *_table(forecasts))
    return 0


def _forecasts(arguments: argparse.Namespace) -> list[RunForecast]:
    if arguments.system:
        system = system_of(arguments)
        say_unread(system, arguments)
        return [forecast_run(system, arguments.gpu)]
    systems = [load_system(name, arguments.overrides) for name in system_names()]
    known = sorted(filter(trains_bert_large, systems), key=lambda one: one.world_size)
    return [forecast_run(system, arguments.gpu) for system in known]


def _as_json(one: RunForecast) -> dict[str, Any]:
    return {
        "system": one.system.name,
        "gpu": one.gpu,
        "gpus": one.system.world_size,
        "global_batch_size": one.system.global_batch_size,
        "samples_to_converge": round(one.samples.number),
        "samples_source": one.samples.source,
        "predicted_min": round(one.minutes, 4),
        "likely_min": round(one.range.middle_min, 4),
        "range_min": [round(one.range.low_min, 4), round(one.range.high_min, 4)],
        "range_source": one.range.source,
        "warnings": _warnings(one),
        "seconds": {part: round(value, 3) for part, value in vars(one.seconds).items()},
        "limit": one.seconds.limit,
    }


def _table(forecasts: list[RunForecast]) -> list[str]:
    lines = [f"{'system':<20}{'GPUs':>6} {'GPU':<5}{'batch':>7}{'samples':>11}{'time to train':>24}  limited by"]
    for one in forecasts:
        system = one.system
        lines.append(
            f"{system.name:<20}{system.world_size:>6} {one.gpu:<5}{system.global_batch_size:>7}"
            f"{one.samples.number:>11,.0f}{one.range!s:>24}  {LIMITS[one.seconds.limit]}"
        )
    if len(forecasts) == 1:
        for part, value in vars(forecasts[0].seconds).items():
            lines.append(f"{part:>20}{value:>10.1f} s{100 * value / forecasts[0].seconds.total:>6.1f} %")
        lines.append(f"samples to converge: {forecasts[0].samples.source}")
        lines.append(
            f"time to train: the range holds nine of ten results, by the errors on {forecasts[0].range.source}"
        )
    return lines + [f"warning: {one.system.name}: {warning}" for one in forecasts for warning in _warnings(one)]


@cache
def _warnings(one: RunForecast) -> list[str]:
    """Return how the system differs from the calibration, and whether the batch fits."""
    from bertbench.plan.memory import capacity_gb, needed_gb  # noqa: PLC0415 - loads torch, which takes seconds

    system, found = one.system, one.warnings
    needed, there = needed_gb(system), capacity_gb(system)
    if needed > there:
        found.append(
            f"batch {system.global_batch_size:,}: a GPU needs {needed:.0f} GB and has {there:g}: the run would fail; "
            "raise data.gradient_accumulation_steps"
        )
    return found


def _print_validation(as_json: bool) -> None:
    held, others = leave_out("row"), other_results("a100")
    errors = {group: [abs(one.error) for one in leave_out(group)] for group in GROUPS}
    left_out = {
        group: {"median_error": round(median(own), 4), "worst_error": round(max(own), 4)}
        for group, own in errors.items()
    }
    result = {
        **left_out["row"],
        "covered": (inside := covered([one.error for one in held])),
        "left_out": left_out,
        "systems": [_comparison(one) for one in held],
        "others": [_comparison(one) for one in others],
    }
    lines = []
    for heading, rows in (("each forecast without its own row", held), ("other A100s, as if DGX A100", others)):
        lines.append(f"{heading}:")
        for one in rows:
            row = one.row
            lines.append(
                f"  {row.rounds.split(';')[0]:<4}{row.submitter:<19}{row.system[:46]:<47}{row.accelerators:>5}"
                f"{one.predicted_s / 60:>9.2f} min, published{row.seconds / 60:>9.2f}{100 * one.error:>+8.1f} %"
            )
    lines.append(f"{len(held)} results, errors of forecasts without")
    for group, own in errors.items():
        lines.append(f"  their {group:<10} median{100 * median(own):>5.1f} %, worst{100 * max(own):>5.1f} %")
    lines.append(f"  a range of nine tenths of the other rows' errors holds {inside} of {len(held)}")
    emit(as_json, result, *lines)


def _comparison(one: Comparison) -> dict[str, Any]:
    return {
        "system": one.row.system,
        "submitter": one.row.submitter,
        "round": one.row.rounds.split(";")[0],
        "gpus": one.row.accelerators,
        "predicted_min": round(one.predicted_s / 60, 4),
        "published_min": round(one.row.seconds / 60, 4),
    }
