"""Make our own reference convergence points in the format of MLPerf's files, and judge runs by them.

The official checker refuses runs that converge implausibly fast: its limit is some distance below the reference's mean.
To catch regressions, runs that are above the mean by the same distance are refused, too.
"""

import json
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bertbench.common.errors import DataError
from bertbench.report.scores import BENCHMARK, RUNS, mlperf_score
from bertbench.run_files.json_files import read_json
from bertbench.run_files.run_settings import LOGGED, Runs, Values, configured, reached_target, system_name
from bertbench.run_files.sample_counts import EPOCH_NUM, sample_counts, samples_to_end
from bertbench.run_files.verdicts import verdicts_on
from compliance import convergence
from compliance.read.log import CannotJudge
from compliance.read.run import Converged, RunFacts
from compliance.read.source import read_plain

LEAST_RUNS = 2 * RUNS
"""The number of runs that a reference needs: MLPerf requires twice the runs of a result."""
_LARGEST = 1 << 20  # bytes of a reference file
_DECISIVE = (
    "model.", "data.global_batch_size", "data.recipe.", "loss.", "optimizer.", "schedule.", "clip.", "evaluation.",
    "precision.compute",
)  # fmt: skip
"""Prefixes of the settings that decide convergence."""
_HYPERPARAMETERS = LOGGED - {"submission_division", "submission_platform"}
"""Keys of a log that decide convergence."""
_FIELDS = {
    "Benchmark": str, "BS": int, "Hyperparams": dict, "Epochs to converge": list,
    "Configuration": dict, "Seeds": list, "Precisions": list,
}  # fmt: skip
"""The fields of a reference that are read here: MLPerf's, and additional ones, which the official checker ignores."""


class ReferenceVerdict(NamedTuple):
    """The verdict on runs by a reference; as in MLPerf, means of samples leave out the lowest and the highest."""

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
    """Return a reference convergence point in the format of MLPerf's files.

    Additional fields hold configuration and commits, and the seed and resolved precision of each run. Raises DataError
    if there are too few runs, if a run missed its target, is failed by the judge or has no samples in epoch_num, and if
    runs differ in settings or precision.
    """
    if len(runs) < LEAST_RUNS:
        raise DataError(f"found {len(runs)} runs; a reference needs at least {LEAST_RUNS} of one system: do more runs")
    _check_samples(runs)
    reaching = _reaching(runs, ruleset)
    if missed := [log for log, _ in runs if log not in reaching]:
        raise DataError(
            f"{missed[0]}: did not reach its target by ruleset {ruleset}; a reference needs runs that all did: leave "
            f"out this one, or see `bertbench judge {missed[0]}`"
        )
    seeds = [facts.seed for _, facts in runs]
    if repeated := [seed for seed, count in Counter(seeds).items() if count > 1]:
        raise DataError(f"found seed {repeated[0]} in several runs, which are the same run: give it once")
    first_log, first_facts = runs[0]
    settings = dict(sorted(_decisive_settings(first_log, first_facts).items()))
    _check_same(str(first_log), settings, runs)
    precisions = _one_precision(runs)
    hyperparameters = {key: value for key, value in settings.items() if key in _HYPERPARAMETERS}
    commits = [str(read_json(log, "run.json").get("commit", "unknown")) for log, _ in runs]
    batch = hyperparameters.pop("global_batch_size")
    return {
        f"{BENCHMARK}_ref_{batch}": {
            "Benchmark": BENCHMARK,
            "Creator": "bertbench",
            "When": time.strftime("%Y-%m-%d", time.gmtime()),
            "Platform": system_name(first_log, first_facts),
            "BS": batch,
            "Hyperparams": hyperparameters,
            "Epochs to converge": [round(samples_to_end(facts) or 0) for _, facts in runs],
            "Configuration": {key: value for key, value in settings.items() if key not in _HYPERPARAMETERS},
            "Seeds": seeds,
            "Precisions": precisions,
            "Commits": dict(Counter(commits)),
        }
    }


def judged_by_reference(runs: Runs, file: Path, ruleset: str) -> ReferenceVerdict:
    """Judge a result's runs by the reference in `file`.

    Raises DataError if the file isn't a reference, if it contains a seed of the runs, or if the runs are too few or
    differ from it in settings or resolved precision.
    """
    text, point = _read(file)
    if len(runs) < RUNS:
        raise DataError(f"found {len(runs)} runs; the limits are for the {RUNS} runs of a result: do more runs")
    expected = {**point["Configuration"], **point["Hyperparams"], "global_batch_size": point["BS"]}
    _check_same(str(file), expected, runs)
    for log, facts in runs:
        if facts.seed in point["Seeds"]:
            raise DataError(
                f"{log}: has seed {facts.seed}, and so has a run of {file}; a reference can't judge runs from which it "
                "was made: do runs with other seeds, or make another reference"
            )
    _one_precision(runs, point["Precisions"])
    _check_samples(runs)
    reaching = _reaching(runs, ruleset)
    converged = [
        Converged(facts.global_batch_size, samples_to_end(facts) if log in reaching else None) for log, facts in runs
    ]
    official = convergence(converged, ruleset, text)
    mean = mlperf_score([run.samples for run in converged])
    reference = official.reference_mean
    least = official.least_mean
    most = None if reference is None or least is None else 2 * reference - least
    verdict = "pass" if official.passed else "fail"
    message = f"the official checker: {official.message}"
    if official.passed and most is not None and (mean is None or mean > most):
        verdict = "fail"
        message = "they converge more slowly than the reference: look for a regression in training"
    if not official.passed and least is not None and mean is not None and mean < least:
        message = f"they converge implausibly fast for this reference; {message}"
    return ReferenceVerdict(verdict, message, len(runs), mean, reference, least, most)


def _reaching(runs: Runs, ruleset: str) -> set[Path]:
    """Return the logs of the runs that reached their target."""
    verdicts, _ = verdicts_on([log for log, _ in runs], ruleset)
    return {log for log, facts in runs if reached_target(log, facts, verdicts[log])}


def _check_samples(runs: Runs) -> None:
    """Raise DataError for a run without training samples in epoch_num, which the official checker reads.

    A run without evaluations has missed its target, which is detected elsewhere.
    """
    for log, facts in runs:
        if facts.evaluations and sample_counts(facts).source != EPOCH_NUM:
            raise DataError(
                f"{log}: epoch_num doesn't count training samples, by which the official checker judges convergence; "
                "give logs in which it does, as MLPerf's rules require since round 2.1"
            )


def _decisive_settings(log: Path, facts: RunFacts) -> Values:
    """Return the settings that decide convergence, from the configuration and from the log."""
    settings = {key: value for key, value in configured(log).items() if key.startswith(_DECISIVE)}
    for key in _HYPERPARAMETERS:
        if facts.first(key) is not None:
            settings[key] = facts.value(key)
    return settings


def _one_precision(runs: Runs, of_reference: Sequence[str | None] = ()) -> list[str | None]:
    """Return the number format to which each run resolved `precision.compute`; None if it isn't recorded.

    Raises DataError if known formats differ, including those of a reference.
    """
    precisions = [read_json(log, "arithmetic.json").get("precision") for log, _ in runs]
    known = sorted({str(precision) for precision in [*of_reference, *precisions] if precision})
    if len(known) > 1:
        raise DataError(
            f"found runs in {' and '.join(known)}, expected one precision; do all runs with --set precision.compute="
            f"{known[0]}, or another"
        )
    return precisions


def _check_same(name: str, expected: Values, runs: Runs) -> None:
    """Raise DataError if the settings of a run differ.

    A setting that only one of the two has doesn't count, because older commits lack some settings or name them
    differently.
    """
    for log, facts in runs:
        settings = _decisive_settings(log, facts)
        for key in sorted(expected.keys() & settings.keys()):
            if expected[key] != settings[key]:
                raise DataError(
                    f"{log}: has {key} {settings[key]}, but {name} has {expected[key]}; a reference is for one system "
                    "with one configuration: give only runs of that"
                )


def _read(file: Path) -> tuple[str, dict[str, Any]]:
    try:
        text = read_plain(file, _LARGEST).decode()
        (point,) = json.loads(text).values()
        if not all(isinstance(point.get(name), kind) for name, kind in _FIELDS.items()):
            raise ValueError
    except (CannotJudge, ValueError, AttributeError, TypeError) as error:
        raise DataError(
            f"{file}: is not a reference for one system; make one with `bertbench rcp RESULTS --out FILE`"
        ) from error
    return text, point
