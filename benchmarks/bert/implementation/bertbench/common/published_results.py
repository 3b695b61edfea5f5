"""Read published MLPerf Training results of BERT, rounds 1.1 to 5.0, to show beside the user's runs.

published_bert.csv was computed from the result logs in the public repositories mlcommons/training_results_v1.1 to
training_results_v5.0. It has one row for each result: times in minutes (the mean without the fastest and the slowest
run), samples to converge as a mean, and rounds, which are joined by ; if one system was submitted to several.
"""

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

MLPERF_TARGET = 0.720  # masked-LM accuracy, since round 1.0
TABLE = Path(__file__).with_name("published_bert.csv")
_HYPER_PARAMETERS = ("learning_rate", "beta1", "beta2", "training_steps", "warmup_steps", "start_warmup_step")


@dataclass(frozen=True)
class PublishedResult:
    """One published result: a system's mean. Values missing from its logs are None."""

    rounds: str
    submitter: str
    system: str
    division: str
    accelerator: str
    accelerators: int | None
    nodes: int
    seconds: float
    """Time to train, as measured."""
    minutes: float
    """The published score: time to train, scaled by the reference convergence points if they require it."""
    samples_to_converge: float
    global_batch_size: int
    hyper_parameters: tuple[float, ...]
    """Learning rate, both betas, training steps, warm-up steps, start of warm-up; empty if they weren't logged."""


@cache
def published_results() -> tuple[PublishedResult, ...]:
    """Return all of them, in the file's order."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        return tuple(map(_result, csv.DictReader(file)))


def _result(row: dict[str, str]) -> PublishedResult:
    hyper_parameters = [row[name] for name in _HYPER_PARAMETERS]
    return PublishedResult(
        rounds=row["rounds"],
        submitter=row["submitter"],
        system=row["system"],
        division=row["division"],
        accelerator=row["accelerator"],
        accelerators=int(row["accelerators"]) if row["accelerators"] else None,
        nodes=int(float(row["nodes"])),
        seconds=60 * float(row["time_to_train_min"]),
        minutes=float(row["rcp_scaled_min"] or row["time_to_train_min"]),
        samples_to_converge=float(row["samples_to_converge"]),
        global_batch_size=int(row["global_batch_size"]),
        hyper_parameters=tuple(map(float, hyper_parameters)) if all(hyper_parameters) else (),
    )
