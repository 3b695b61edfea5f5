"""Make our own reference convergence points, in the form of MLPerf's files, and judge runs by them.

The official checker refuses runs that converge implausibly fast. To catch regressions, runs above the reference's mean
by the same distance as that limit is below it are refused too.
"""

import json
import math
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

from bertbench.common.errors import DataError
from bertbench.report.beside import described
from bertbench.report.listing import system_name
from bertbench.report.settings import LOGGED, Runs, Values, configured
from compliance.log import CannotJudge
from compliance.official_tools import Converged, convergence, runs_per_result
from compliance.run import RunFacts
from compliance.source import read_plain

BENCHMARK = "bert"
LEAST_RUNS = 2 * runs_per_result(BENCHMARK)
"""Runs of a reference: MLPerf requires twice the runs of a result."""
_LARGEST = 1 << 20  # bytes of a reference
_DECISIVE = (
    "model.", "data.global_batch_size", "data.recipe.", "loss.", "optimizer.", "schedule.", "clip.", "evaluation.",
    "precision.compute",
)  # fmt: skip
"""Prefixes of the settings that decide convergence."""


class Verdict(NamedTuple):
    """The verdict on runs by a reference; means (training samples) leave out the least and the most, like MLPerf's."""

    verdict: str
    """pass or fail."""
    message: str
    runs: int
    mean: float | None
    reference_mean: float | None
    least_mean: float | None
    """The official limit: runs with a smaller mean converge implausibly fast."""
    most_mean: float | None
    """Runs with a larger mean converge more slowly than the reference."""
    note: str | None
    """What the reference doesn't record, so that it isn't checked."""


def reference_of(runs: Runs) -> dict[str, Any]:
    """Return a reference convergence point in the form of MLPerf's files.

    Extra fields, which the official checker ignores, have configuration and commits, and seed and resolved precision
    of each run. Raises DataError for too few runs, for one that missed its target, and for runs that differ in settings
    or precision.
    """
    if len(runs) < LEAST_RUNS:
        raise DataError(f"found {len(runs)} runs; a reference needs at least {LEAST_RUNS} of one system: record more")
    missed = [log for log, facts in runs if facts.status != "success" or not facts.samples]
    if missed:
        raise DataError(f"{missed[0]}: did not reach its target; a reference needs runs that all did: leave it out")
    seeds = [facts.seed for _, facts in runs]
    if again := [seed for seed, count in Counter(seeds).items() if count > 1]:
        raise DataError(f"found seed {again[0]} in several runs, which repeat one run: give each once")
    first = runs[0]
    _check_same(str(first[0]), _settings(first), runs)
    precisions = _one_precision(runs)
    configuration, hyperparameters = (_shared(found) for found in zip(*map(_settings, runs), strict=True))
    commits = [str(described(log, "run.json").get("commit", "unknown")) for log, _ in runs]
    batch = hyperparameters.pop("global_batch_size")
    return {
        f"{BENCHMARK}_ref_{batch}": {
            "Benchmark": BENCHMARK,
            "Creator": "bertbench",
            "When": time.strftime("%Y-%m-%d", time.gmtime()),
            "Platform": system_name(*first),
            "BS": batch,
            "Hyperparams": hyperparameters,
            "Epochs to converge": [round(facts.samples or 0) for _, facts in runs],
            "Configuration": configuration,
            "Seeds": seeds,
            "Precisions": precisions,
            "Commits": dict(Counter(commits)),
        }
    }


def judged(runs: Runs, file: Path, ruleset: str) -> Verdict:
    """Judge a result's runs by the reference in `file`.

    Raises DataError if the file isn't a reference, if it has a seed of the runs, or if the runs are too few or differ
    from it in settings or resolved precision.
    """
    text, point = _read(file)
    needed = runs_per_result(BENCHMARK)
    if len(runs) < needed:
        raise DataError(f"found {len(runs)} runs; the limits are for the {needed} of a result: record more")
    expected = point.get("Configuration", {}), {**point["Hyperparams"], "global_batch_size": point["BS"]}
    _check_same(str(file), expected, runs)
    seeds = point.get("Seeds", [])
    for log, facts in runs:
        if facts.seed in seeds:
            raise DataError(
                f"{log}: has seed {facts.seed}, and so has a run of {file}; a reference can't judge runs that it was "
                "made of: record runs with other seeds, or make another reference"
            )
    _one_precision(runs, point.get("Precisions", []))
    converged = [
        Converged(facts.global_batch_size, facts.samples if facts.status == "success" else None) for _, facts in runs
    ]
    official = convergence(converged, ruleset, text)
    own = mean(sorted(one.samples or math.inf for one in converged)[1:-1])
    reference, least = official.reference_mean, official.least_mean
    most = None if reference is None or least is None else 2 * reference - least
    verdict, message = "pass" if official.passed else "fail", f"the official checker: {official.message}"
    if not official.passed and least is not None and own < least:
        message = f"they converge implausibly fast for this reference; {message}"
    elif official.passed and most is not None and own > most:
        verdict, message = "fail", "they converge more slowly than the reference: look for a regression in training"
    note = None if seeds else f"{file} records no seeds, so runs that it was made of aren't recognised"
    return Verdict(verdict, message, len(runs), own if own < math.inf else None, reference, least, most, note)


def _settings(run: tuple[Path, RunFacts]) -> tuple[Values, Values]:
    """Return the settings that decide convergence: those of the configuration, empty without one, and of the log."""
    log, facts = run
    logged = {key: facts.value(key) for key in sorted(LOGGED - {"submission_division"}) if facts.first(key) is not None}
    return {key: value for key, value in configured(log).items() if key.startswith(_DECISIVE)}, logged


def _one_precision(runs: Runs, others: Sequence[str | None] = ()) -> list[str | None]:
    """Return the number format that each run resolved `precision.compute` to; None if it isn't recorded.

    Raises DataError if known ones, and those of `others`, differ.
    """
    found = [described(log, "arithmetic.json").get("precision") for log, _ in runs]
    known = sorted({str(one) for one in [*others, *found] if one})
    if len(known) > 1:
        raise DataError(
            f"found runs in {' and '.join(known)}, expected one precision; record all with --set precision.compute="
            f"{known[0]}, or another"
        )
    return found


def _shared(found: Sequence[Values]) -> Values:
    return {key: value for key, value in found[0].items() if all(other.get(key) == value for other in found)}


def _check_same(name: str, expected: tuple[Values, Values], runs: Runs) -> None:
    """Raise DataError if a run has other settings, in its configuration, or in its log if one lacks a configuration.

    A setting that one of the two lacks doesn't count: older commits lack some settings and rename others.
    """
    for run in runs:
        found = _settings(run)
        place = 0 if expected[0] and found[0] else 1
        wanted, own = expected[place], found[place]
        for key in sorted(wanted.keys() & own.keys()):
            if wanted[key] != own[key]:
                raise DataError(
                    f"{run[0]}: has {key} {own[key]}, {name} has {wanted[key]}; a reference covers one system with one "
                    "configuration: give only its runs"
                )


def _read(file: Path) -> tuple[str, dict[str, Any]]:
    try:
        text = read_plain(file, _LARGEST).decode()
        (point,) = json.loads(text).values()
        known = {"Benchmark": str, "BS": int, "Hyperparams": dict, "Epochs to converge": list}
        if not all(isinstance(point.get(name), kind) for name, kind in known.items()):
            raise ValueError
    except (CannotJudge, ValueError, AttributeError, TypeError) as error:
        raise DataError(
            f"{file}: is not a reference of one system; make one with `bertbench rcp RESULTS --out FILE`"
        ) from error
    return text, point
