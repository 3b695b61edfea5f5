"""Judge a closed result's samples to converge against the reference convergence points, and the resulting scaling."""

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from compliance.judge import Judgement
from compliance.official import tools
from compliance.package.checker_options import RCP_BYPASS, checker_options
from compliance.read.record import shown
from compliance.read.run import Converged, RunFacts, number
from compliance.read.source import CannotJudge, found_at, read_plain
from compliance.rules.convergence_points import (
    CONVERGENCE,
    SCALING,
    TRAIN_SAMPLES_SINCE,
    evaluations_report_training_samples,
)
from compliance.rules.rule import Breach, Unchecked

SCALING_FILE = "scaling.json"
_LARGEST = 1 << 16  # bytes; published ones have some tens


def samples_to_converge(logs: Sequence[Judgement], ruleset: str) -> list[Converged]:
    """Return each run's samples to converge, as the official checker reads them.

    The checker takes the last epoch_num. If the submitter gives it --rcp-bert-train-samples ("Benchmark Specific
    Rules"), it takes the last train_samples of all runs. A package doesn't record that option. So we take train_samples
    if epoch_num doesn't count samples.
    """
    by_epoch_num = [_to_converge(log.facts, _by_epoch_num) for log in logs]
    if ruleset < TRAIN_SAMPLES_SINCE or not any(_counts_no_samples(log) for log in logs):
        return by_epoch_num
    by_train_samples = [_to_converge(log.facts, _by_train_samples) for log in logs]
    for epoch, train in zip(by_epoch_num, by_train_samples, strict=True):
        if epoch.samples is not None and train.samples is None:
            return by_epoch_num  # a run doesn't log train_samples, so the option would be of no use
    return by_train_samples


def _counts_no_samples(log: Judgement) -> bool:
    """Return whether the judgement notes that the log's epoch_num counts epochs or steps."""
    return any(unchecked.rule == evaluations_report_training_samples.id for unchecked in log.not_applied)


def _to_converge(facts: RunFacts | None, counts: Callable[[RunFacts, int], list[float | None]]) -> Converged:
    """Return a run's batch size, and its last count of samples above run_stop; that is None if the run failed."""
    if facts is None:
        return Converged(None, None)
    batch = number(facts.global_batch_size)
    stop = facts.first("run_stop")
    if stop is None or facts.status != "success":
        return Converged(batch, None)
    counts_before = counts(facts, stop.line)
    return Converged(batch, counts_before[-1] if counts_before else None)


def _by_epoch_num(facts: RunFacts, end: int) -> list[float | None]:
    return [evaluation.samples for evaluation in facts.evaluations if evaluation.line < end]


def _by_train_samples(facts: RunFacts, end: int) -> list[float | None]:
    return [number(event.value) for event in facts.all("train_samples") if event.line < end]


def judge_convergence(folder: Path, verdict: tools.Convergence, runs: Sequence[Converged]) -> list[Breach | Unchecked]:
    """Report the official verdict on the runs in a folder; with the bypass, the review decides, and a gap remains."""
    if verdict.passed:
        return []  # the result's scaling shows whether it converges sooner than the reference
    text = "samples to converge"
    if verdict.mean is not None:
        text = f"mean samples to converge {verdict.mean:,.0f}"
    if any(_stopped_within_a_batch(run) for run in runs):
        text += ", from epoch_num, which doesn't count samples as the official checker expects"
    expected = "agreement with the reference convergence points"
    if verdict.least_mean is not None:
        expected = f"at least {verdict.least_mean:,.0f}, by the reference convergence points"
    if RCP_BYPASS in checker_options(folder):
        return [CONVERGENCE.unchecked(f"waived by {RCP_BYPASS}: {text}: {verdict.message}; expected {expected}")]
    return [CONVERGENCE.breach(f"{text}: {verdict.message}", expected)]


def _stopped_within_a_batch(run: Converged) -> bool:
    if run.samples is None or run.global_batch_size is None:
        return False
    return 0 < run.samples < run.global_batch_size


def judge_scaling(folder: Path, expected: float) -> list[Breach | Unchecked]:
    """Check the factor in scaling.json, by which the official summary multiplies the score; a review may set any."""
    path = folder / SCALING_FILE
    if not os.path.lexists(path):
        return []
    try:
        factor = json.loads(read_plain(path, _LARGEST).decode())["scaling_factor"]
    except (CannotJudge, ValueError, TypeError, KeyError, OverflowError, RecursionError) as problem:
        reason = found_at(path, problem) if isinstance(problem, CannotJudge) else problem
        return [SCALING.breach(f"{SCALING_FILE} can't be read ({reason})", "a JSON object with scaling_factor")]
    stated = number(factor)
    if stated is None:
        return [SCALING.breach(f"{SCALING_FILE}: factor {shown(factor)}", "a number")]
    if abs(stated - expected) <= 1e-6 * expected:
        return []
    reason = (
        f"{SCALING_FILE}: factor {shown(factor)}, but {expected:.6f} by the official RCP checker; the review may have "
        "set it"
    )
    return [SCALING.unchecked(reason, asked=False)]
