"""Judge one result of a package: the runs of one benchmark on one system, singly and together.

MLPerf's training and submission rules ask of the runs together: their number, at most one failure, a seed each, the
same settings, and no fewer samples to converge than the reference.
"""

import json
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from compliance import alike, official, official_tools, power, together
from compliance.alike import Trace
from compliance.description import DIVISIONS
from compliance.finding import Finding, Findings, Severity
from compliance.judge import LOG_PATTERN, Judgement, once
from compliance.run import RunFacts, number
from compliance.score import olympic_mean
from compliance.source import CannotJudge, read_plain

_MOST_SCALING = 1 << 16  # bytes
_MOST_RUNS = 50  # judged; ten make a result


@dataclass(frozen=True)
class Result:
    """The verdict on one result; `time_to_train_s` is the mean of the runs that count, not yet scaled."""

    system: str
    benchmark: str
    division: str | None
    logs: tuple[Judgement, ...]
    time_to_train_s: float | None
    convergence: official_tools.Convergence | None
    findings: tuple[Finding, ...]
    energy_j: float | None
    """Mean of the runs that count, not yet scaled; None if not measured."""
    traces: tuple[Trace, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the fields that `--json` prints."""
        shown = ("system", "benchmark", "division", "time_to_train_s", "energy_j", "convergence", "findings")
        return {name: getattr(self, name) for name in shown} | {"logs": [log.as_json() for log in self.logs]}


def judge_result(folder: Path, name: str, described: dict[str, str], ruleset: str) -> Result:
    """Judge the logs in results/<system>/<benchmark>; `described` are the system description's fields."""
    division = described.get("division")
    entries = sorted(folder.glob(LOG_PATTERN), key=lambda path: (len(path.name), path.name))
    paths = [path for path in entries if path.is_file()][:_MOST_RUNS]
    judged = [together.judged(path, f"{name}/{path.name}", ruleset) for path in paths]
    logs = tuple(log for log, _ in judged)
    passed = [_converged(log) for log in logs]
    times = [log.facts.time_to_train_s if ok and log.facts else None for log, ok in zip(logs, passed, strict=True)]
    closed = _is_closed(division, logs)
    ours = [
        *_number_of_runs(folder, entries, paths),
        *_failures(logs, passed),
        *_belonging(folder.name, division, logs),
        *together.judge(folder, closed, ruleset, logs),
    ]
    measured, energy_j = power.judge(folder, name, {log.path.name: log.facts for log in logs}, described)
    findings = [*_of(name, ours), *measured]
    convergence = None
    whole = len(logs) == official_tools.runs_per_result(folder.name) and any(log.facts for log in logs)
    if closed and ruleset >= official.OLDEST_RCP_RULESET and whole:
        converged = [_to_converge(log.facts) for log in logs]
        convergence = official_tools.convergence(converged, ruleset)
        findings += _convergence(folder, name, convergence, converged)
    findings += _scaling(folder, name, convergence.scaling if convergence else 1.0)
    own, common = once(logs)
    findings += _of(name, common)
    return Result(
        system=folder.parent.name,
        benchmark=folder.name,
        division=division,
        logs=tuple(own),
        time_to_train_s=None if all(time is None for time in times) else olympic_mean(times),
        convergence=convergence,
        findings=tuple(findings),
        energy_j=energy_j,
        traces=tuple(trace for _, trace in judged),
    )


def _of(name: str, findings: Iterable[Finding]) -> list[Finding]:
    """Return findings that name the result."""
    return [replace(one, found=f"{name}: {one.found}") for one in findings]


def _is_closed(division: str | None, logs: Sequence[Judgement]) -> bool:
    """Return whether closed rules apply; the logs decide if the system description gives no division."""
    if division in DIVISIONS:
        return division == "closed"
    return any(log.facts is not None and log.facts.division == "closed" for log in logs)


def _to_converge(facts: RunFacts | None) -> official_tools.Converged:
    """Return a run's epoch_num at its last evaluation before run_stop: the official checker takes it for samples."""
    if facts is None:
        return official_tools.Converged(None, None)
    stop = facts.first("run_stop")
    counted = facts.evaluations if stop and facts.status == "success" else []
    before = [one.samples for one in counted if stop and one.line < stop.line]
    return official_tools.Converged(number(facts.global_batch_size), before[-1] if before else None)


def _converged(log: Judgement) -> bool:
    return log.verdict == "pass" and log.facts is not None and log.facts.status == "success"


def _number_of_runs(folder: Path, entries: Sequence[Path], paths: Sequence[Path]) -> Findings:
    expected = official_tools.runs_per_result(folder.name)
    if len(paths) != expected:
        mend = f"keep {expected} consecutive ones there, and move the other logs, with their folders, elsewhere"
        found, mend = f"{len(entries)} {LOG_PATTERN}", mend if len(paths) > expected else alike.MEND
        yield Finding("runs", "error", found, f"exactly {expected} that are files", mend)
    known = {*paths, *(folder / name for name in (together.PARAMETERS, "scaling.json", power.FOLDER))}
    others = sorted({*folder.iterdir()} - known)
    if others:
        found = f"other entries: {', '.join(path.name for path in others[:5])}"
        yield Finding("runs", "warning", found, f"{LOG_PATTERN} only", "rename or remove them")


def _failures(logs: Sequence[Judgement], passed: Sequence[bool]) -> Findings:
    """Find the failed runs, and those that are no runs: one may fail, but it must be a run."""
    failed = [log.path.name for log, ok in zip(logs, passed, strict=True) if not ok]
    if failed:
        found = f"{len(failed)} of {len(logs)} runs failed: {', '.join(failed)}"
        severity: Severity = "info" if len(failed) == 1 else "error"
        expected = "at most one, which is dropped as the slowest"
        yield Finding("failed-runs", severity, found, expected, alike.MEND)
    if tries := [log.path.name for log in logs if log.facts and log.facts.not_a_result]:
        found = f"runs that log not_a_result: {', '.join(tries)}"
        yield Finding("not-a-result", "error", found, "complete runs", alike.MEND)


def _belonging(benchmark: str, division: str | None, logs: Sequence[Judgement]) -> Findings:
    for what, here in (("division", division), ("benchmark", benchmark)):
        logged = {log.path.name: getattr(log.facts, what) for log in logs if log.facts}
        other = {name: value for name, value in logged.items() if here and value != here}
        if other:
            found = f"submission_{what} is {next(iter(other.values()))!r} in {', '.join(other)}"
            remedy = "put the logs where they belong, or correct the system description"
            yield Finding(what, "error", found, f"{here!r}, as the package says", remedy)


def _convergence(
    folder: Path, name: str, verdict: official_tools.Convergence, runs: Sequence[official_tools.Converged]
) -> Findings:
    text = name if verdict.mean is None else f"{name}: mean samples to converge {verdict.mean:,.0f}"
    if any(run.samples and run.global_batch_size and run.samples < run.global_batch_size for run in runs):
        text += ": epoch_num counts no samples, as which the official checker takes it"
    if not verdict.passed:
        expected = "agreement with the reference convergence points"
        if verdict.least_mean is not None:
            expected = f"at least {verdict.least_mean:,.0f}, by the reference convergence points"
        severity: Severity = "warning" if "rcp-bypass" in together.parameters(folder) else "error"
        remedy = "run again, or submit a reference convergence point for this batch size"
        yield Finding("convergence", severity, f"{text}: {verdict.message}", expected, remedy)
    elif verdict.scaling > 1:
        expected = f"the reference's {verdict.reference_mean:,.0f}, or more"
        remedy = f"multiply the time to train by {verdict.scaling:.4f}, as the rules ask"
        yield Finding("convergence", "warning", text, expected, remedy)


def _scaling(folder: Path, name: str, expected: float) -> Findings:
    # result_summarizer multiplies the score by the file's factor, in the open division too
    path = folder / "scaling.json"
    if not os.path.lexists(path):
        return
    try:
        factor = float(json.loads(read_plain(path, _MOST_SCALING))["scaling_factor"])
    except (CannotJudge, ValueError, TypeError, KeyError, OverflowError, RecursionError):
        factor = math.nan
    if not math.isclose(factor, expected, rel_tol=1e-6):
        found = f"{name}/scaling.json: factor {factor}"
        yield Finding("scaling", "error", found, f"{expected:.6f}", "remove the file: the official tool writes it")
