"""Judge a closed result's samples to converge against the reference convergence points, and the resulting scaling."""

import os
from collections.abc import Sequence
from pathlib import Path

from compliance.judge import Judgement
from compliance.official import tools
from compliance.package.checker_options import RCP_BYPASS, checker_options
from compliance.read.record import decoded_json, shown
from compliance.read.run import number
from compliance.read.source import CannotJudge, found_at, read_plain
from compliance.rules.convergence_points import CONVERGENCE, SCALING, evaluations_report_training_samples
from compliance.rules.rule import Breach, Unchecked

SCALING_FILE = "scaling.json"
_LARGEST = 1 << 16  # bytes; published ones have some tens
_TOLERANCE = 1e-6  # relative, for a factor that was written with few digits


def judge_convergence(folder: Path, verdict: tools.Convergence, logs: Sequence[Judgement]) -> list[Breach | Unchecked]:
    """Report the official verdict on the runs in a folder; with the bypass, the review decides, and a gap remains."""
    if verdict.passed:
        return []  # the result's scaling shows whether it converges sooner than the reference
    text = "samples to converge"
    if verdict.mean is not None:
        text = f"mean samples to converge {verdict.mean:,.0f}"
    if any(_counts_no_samples(log) for log in logs):
        text += ", from epoch_num, which doesn't count samples as the official checker expects"
    expected = "agreement with the reference convergence points"
    if verdict.least_mean is not None:
        expected = f"at least {verdict.least_mean:,.0f}, by the reference convergence points"
    if RCP_BYPASS in checker_options(folder):
        return [CONVERGENCE.unchecked(f"waived by {RCP_BYPASS}: {text}: {verdict.message}; expected {expected}")]
    return [CONVERGENCE.breach(f"{text}: {verdict.message}", expected)]


def _counts_no_samples(log: Judgement) -> bool:
    """Return whether the judgement notes that the log's epoch_num counts epochs or steps."""
    return any(unchecked.rule == evaluations_report_training_samples.id for unchecked in log.not_applied)


def judge_scaling(folder: Path, expected: float) -> list[Breach]:
    """Check that scaling.json, if there is one, has only the factor that the official RCP checker gives.

    The official summary multiplies the score by that factor, whatever it is.
    """
    path = folder / SCALING_FILE
    if not os.path.lexists(path):
        return []
    by_checker = f"{expected:.6f}, by the official RCP checker"
    try:
        content, repeated = decoded_json(read_plain(path, _LARGEST).decode())
        factor = content["scaling_factor"]
    except (CannotJudge, ValueError, TypeError, KeyError, OverflowError, RecursionError) as problem:
        reason = found_at(path, problem) if isinstance(problem, CannotJudge) else problem
        return [SCALING.breach(f"{SCALING_FILE} can't be read ({reason})", "a JSON object with scaling_factor")]
    if repeated:
        return [SCALING.breach(f"{SCALING_FILE}: gives {', '.join(repeated[:5])} more than once", by_checker)]
    stated = number(factor)
    if stated is None or abs(stated - expected) > _TOLERANCE * expected:
        return [SCALING.breach(f"{SCALING_FILE}: factor {shown(factor)}", by_checker)]
    return []
