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
from typing import Any, NamedTuple

from bertbench.common.errors import DataError
from bertbench.report.listing import system_name
from bertbench.report.scores import BENCHMARK, RUNS, score
from bertbench.run_files.reading import described
from bertbench.run_files.samples import EPOCH_NUM, sample_counts, samples_to_end
from bertbench.run_files.settings import LOGGED, Runs, Values, configured, reached
from bertbench.run_files.verdicts import verdicts
from compliance import convergence
from compliance.read.log import CannotJudge
from compliance.read.run import Converged, RunFacts
from compliance.read.source import read_plain

LEAST_RUNS = 2 * RUNS
"""Runs of a reference: MLPerf requires twice the runs of a result."""
_LARGEST = 1 << 20  # bytes of a reference
_DECISIVE = (
    "model.", "data.global_batch_size", "data.recipe.", "loss.", "optimizer.", "schedule.", "clip.", "evaluation.",
    "precision.compute",
)  # fmt: skip
"""Prefixes of the settings that decide convergence."""
_HYPERPARAMETERS = LOGGED - {"submission_division", "submission_platform"}
"""Keys of a log that decide it."""
_FIELDS = {
    "Benchmark": str, "BS": int, "Hyperparams": dict, "Epochs to converge": list,
    "Configuration": dict, "Seeds": list, "Precisions": list,
}  # fmt: skip
"""Those that this file reads: MLPerf's, and our extra ones, which the official checker ignores."""


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


def reference_of(runs: Runs, ruleset: str) -> dict[str, Any]:
    """Return a reference convergence point in the form of MLPerf's files.

    Extra fields have configuration and commits, and seed and resolved precision of each run. Raises DataError for too
    few runs, for one that missed its target or that the judge fails, for one without samples in epoch_num, and for runs
    that differ in settings or precision.
    """
    if len(runs) < LEAST_RUNS:
        raise DataError(f"found {len(runs)} runs; a reference needs at least {LEAST_RUNS} of one system: record more")
    _check_samples(runs)
    reaching = _reaching(runs, ruleset)
    if missed := [log for log, _ in runs if log not in reaching]:
        raise DataError(
            f"{missed[0]}: did not reach its target by ruleset {ruleset}; a reference needs runs that all did: leave "
            f"it out, or see `bertbench judge {missed[0]}`"
        )
    seeds = [facts.seed for _, facts in runs]
    if again := [seed for seed, count in Counter(seeds).items() if count > 1]:
        raise DataError(f"found seed {again[0]} in several runs, which repeat one run: give each once")
    first = runs[0]
    settings = dict(sorted(_settings(*first).items()))
    _check_same(str(first[0]), settings, runs)
    precisions = _one_precision(runs)
    hyperparameters = {key: value for key, value in settings.items() if key in _HYPERPARAMETERS}
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
            "Epochs to converge": [round(samples_to_end(facts) or 0) for _, facts in runs],
            "Configuration": {key: value for key, value in settings.items() if key not in _HYPERPARAMETERS},
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
    if len(runs) < RUNS:
        raise DataError(f"found {len(runs)} runs; the limits are for the {RUNS} of a result: record more")
    expected = {**point["Configuration"], **point["Hyperparams"], "global_batch_size": point["BS"]}
    _check_same(str(file), expected, runs)
    for log, facts in runs:
        if facts.seed in point["Seeds"]:
            raise DataError(
                f"{log}: has seed {facts.seed}, and so has a run of {file}; a reference can't judge runs that it was "
                "made of: record runs with other seeds, or make another reference"
            )
    _one_precision(runs, point["Precisions"])
    _check_samples(runs)
    reaching = _reaching(runs, ruleset)
    converged = [
        Converged(facts.global_batch_size, samples_to_end(facts) if log in reaching else None) for log, facts in runs
    ]
    official = convergence(converged, ruleset, text)
    scored = score([run.samples for run in converged])
    own = math.inf if scored is None else scored
    reference, least = official.reference_mean, official.least_mean
    most = None if reference is None or least is None else 2 * reference - least
    verdict, message = "pass" if official.passed else "fail", f"the official checker: {official.message}"
    if not official.passed and least is not None and own < least:
        message = f"they converge implausibly fast for this reference; {message}"
    elif official.passed and most is not None and own > most:
        verdict, message = "fail", "they converge more slowly than the reference: look for a regression in training"
    return Verdict(verdict, message, len(runs), own if own < math.inf else None, reference, least, most)


def _reaching(runs: Runs, ruleset: str) -> set[Path]:
    """Return the logs of the runs that reached their target."""
    singly, _ = verdicts([log for log, _ in runs], ruleset)
    return {log for log, facts in runs if reached(log, facts, singly[log])}


def _check_samples(runs: Runs) -> None:
    """Raise DataError for a run whose evaluations don't have their samples in epoch_num, as the official checker reads.

    A run without evaluations has missed its target, which is found elsewhere.
    """
    for log, facts in runs:
        if facts.evaluations and sample_counts(facts).source != EPOCH_NUM:
            raise DataError(
                f"{log}: epoch_num counts no training samples, by which the official checker judges convergence; give "
                "logs that have them, as MLPerf's rules ask since round 2.1"
            )


def _settings(log: Path, facts: RunFacts) -> Values:
    """Return the settings that decide convergence: those of the configuration, and of the log."""
    decisive = {key: value for key, value in configured(log).items() if key.startswith(_DECISIVE)}
    return decisive | {key: facts.value(key) for key in _HYPERPARAMETERS if facts.first(key) is not None}


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


def _check_same(name: str, expected: Values, runs: Runs) -> None:
    """Raise DataError if a run has other settings.

    A setting that one of the two lacks doesn't count: older commits lack some settings and rename others.
    """
    for log, facts in runs:
        found = _settings(log, facts)
        for key in sorted(expected.keys() & found.keys()):
            if expected[key] != found[key]:
                raise DataError(
                    f"{log}: has {key} {found[key]}, {name} has {expected[key]}; a reference covers one system with "
                    "one configuration: give only its runs"
                )


def _read(file: Path) -> tuple[str, dict[str, Any]]:
    try:
        text = read_plain(file, _LARGEST).decode()
        (point,) = json.loads(text).values()
        if not all(isinstance(point.get(name), kind) for name, kind in _FIELDS.items()):
            raise ValueError
    except (CannotJudge, ValueError, AttributeError, TypeError) as error:
        raise DataError(
            f"{file}: is not a reference of one system; make one with `bertbench rcp RESULTS --out FILE`"
        ) from error
    return text, point
