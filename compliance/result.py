"""Judge one result of a package: the runs of one benchmark on one system, singly and together.

MLPerf's training and submission rules ask of the runs together: their number, at most one failure, a seed each, the
same settings, and no fewer samples to converge than the reference.
"""

import json
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from compliance import alike, official, official_tools, power, together
from compliance.alike import Trace
from compliance.description import DIVISIONS
from compliance.finding import Finding, Severity
from compliance.judge import LOG_PATTERN, Judgement, judge, once
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
    energy_j: float | None = None
    """Mean of the runs that count, not yet scaled; None if not measured."""
    traces: tuple[Trace, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the fields that `--json` prints."""
        return {
            "system": self.system,
            "benchmark": self.benchmark,
            "division": self.division,
            "time_to_train_s": self.time_to_train_s,
            "energy_j": self.energy_j,
            "convergence": self.convergence and vars(self.convergence),
            "findings": [vars(finding) for finding in self.findings],
            "logs": [log.as_json() for log in self.logs],
        }


def judge_result(folder: Path, name: str, division: str | None, ruleset: str, nodes: int | None = None) -> Result:
    """Judge the logs in results/<system>/<benchmark>; `division` and `nodes` are the description's, if known."""
    entries = sorted(folder.glob(LOG_PATTERN), key=lambda path: (len(path.name), path.name))
    paths = [path for path in entries if path.is_file()][:_MOST_RUNS]
    judged = [_judged(path, f"{name}/{path.name}", division == "closed", ruleset) for path in paths]
    logs = tuple(log for log, _, _ in judged)
    passed = [_converged(log) for log in logs]
    times = [log.facts.time_to_train_s if ok and log.facts else None for log, ok in zip(logs, passed, strict=True)]
    closed = _is_closed(division, logs)
    findings = [
        *_number_of_runs(folder, name, entries, paths),
        *_failures(name, logs, passed),
        *_no_results(name, logs),
        *_belonging(name, folder.name, division, logs),
        *together.judge(folder, name, closed, [_together(log) for log in logs]),
    ]
    measured = power.judge(folder, name, {log.path.name: log.facts for log in logs}, nodes)
    findings += measured.findings if measured else []
    convergence = None
    whole = len(logs) == official_tools.runs_per_result(folder.name) and any(log.facts for log in logs)
    if closed and ruleset >= official.OLDEST_RCP_RULESET and whole:
        convergence = official_tools.convergence([converged for _, converged, _ in judged], ruleset)
        findings += _convergence(folder, name, convergence, [converged for _, converged, _ in judged])
    findings += _scaling(folder, name, convergence.scaling if convergence else 1.0)
    own, common = once(logs)
    findings += [replace(one, found=f"{name}: {one.found}") for one in common]
    return Result(
        system=folder.parent.name,
        benchmark=folder.name,
        division=division,
        logs=tuple(own),
        time_to_train_s=None if all(time is None for time in times) else olympic_mean(times),
        convergence=convergence,
        findings=tuple(findings),
        energy_j=measured and measured.energy_j,
        traces=tuple(trace for _, _, trace in judged),
    )


def _judged(path: Path, name: str, closed: bool, ruleset: str) -> tuple[Judgement, official_tools.Converged, Trace]:
    """Judge one run, and keep only what the result's judge needs: ten large logs must fit into memory."""
    judgement = judge(path, ruleset)
    facts = judgement.facts and judgement.facts.only(together.KEPT, together.MOST_KEPT)
    own = judgement.facts.division == "closed" if judgement.facts else False
    measured = alike.trace(name, closed or own, judgement.facts)
    return replace(judgement, facts=facts), _to_converge(judgement.facts), measured


def _together(log: Judgement) -> together.Run:
    parsed = not any(finding.rule == "record" for finding in log.findings)
    return together.Run(log.path.name, log.facts, parsed)


def _is_closed(division: str | None, logs: Sequence[Judgement]) -> bool:
    """Return whether closed rules apply; the logs decide if the system description gives no division."""
    if division in DIVISIONS:
        return division == "closed"
    return any(log.facts is not None and log.facts.division == "closed" for log in logs)


def _to_converge(facts: RunFacts | None) -> official_tools.Converged:
    """Return a run's epoch_num at its last evaluation before run_stop: the official checker takes it for samples."""
    stop = facts.first("run_stop") if facts else None
    batch = number(facts.global_batch_size) if facts else None
    if facts is None or stop is None or stop.metadata.get("status") != "success":
        return official_tools.Converged(batch, None)
    before = [evaluation.samples for evaluation in facts.evaluations if evaluation.line < stop.line]
    return official_tools.Converged(batch, before[-1] if before else None)


def _converged(log: Judgement) -> bool:
    return log.verdict == "pass" and log.facts is not None and log.facts.status == "success"


def _number_of_runs(folder: Path, name: str, entries: Sequence[Path], paths: Sequence[Path]) -> Iterator[Finding]:
    expected = official_tools.runs_per_result(folder.name)
    if len(paths) != expected:
        found = f"{name}: {len(entries)} {LOG_PATTERN}"
        mend = f"keep {expected} consecutive ones there, and move the other logs, with their folders, elsewhere"
        yield Finding("runs", "error", found, f"exactly {expected}", mend if len(paths) > expected else alike.MEND)
    if specials := [path for path in entries if not path.is_file()]:
        found = f"{name}: not files: {_listed(specials)}"
        yield Finding("runs", "error", found, f"{LOG_PATTERN} that are files", "remove them, or put the logs there")
    twins = [path for number, path in enumerate(paths) if any(path.samefile(other) for other in paths[:number])]
    if twins:
        found = f"{name}: other names of the same file: {_listed(twins)}"
        yield Finding("runs", "error", found, "a file of its own for each run", alike.MEND)
    known = {together.PARAMETERS, "scaling.json", power.FOLDER}
    others = sorted(path for path in folder.iterdir() if not path.match(LOG_PATTERN) and path.name not in known)
    if others:
        found = f"{name}: other entries: {_listed(others)}"
        yield Finding("runs", "warning", found, f"{LOG_PATTERN} only", "rename or remove them")


def _listed(paths: Iterable[Path]) -> str:
    return ", ".join(path.name for path in list(paths)[:5])


def _failures(name: str, logs: Sequence[Judgement], passed: Sequence[bool]) -> Iterator[Finding]:
    failed = [log.path.name for log, ok in zip(logs, passed, strict=True) if not ok]
    if failed:
        found = f"{name}: {len(failed)} of {len(logs)} runs failed: {', '.join(failed)}"
        severity: Severity = "warning" if len(failed) == 1 else "error"
        expected = "at most one, which is dropped as the slowest"
        yield Finding("failed-runs", severity, found, expected, alike.MEND)


def _no_results(name: str, logs: Sequence[Judgement]) -> Iterator[Finding]:
    """One run may fail, but it must be a run: find those that log not_a_result."""
    found = [log.path.name for log in logs if log.facts and log.facts.not_a_result]
    if found:
        text = f"{name}: runs that log not_a_result: {', '.join(found)}"
        yield Finding("not-a-result", "error", text, "complete runs", alike.MEND)


def _belonging(name: str, benchmark: str, division: str | None, logs: Sequence[Judgement]) -> Iterator[Finding]:
    for what, here in (("division", division), ("benchmark", benchmark)):
        other = [log for log in logs if here and log.facts and getattr(log.facts, what) != here]
        if other and other[0].facts:
            found = (
                f"{name}: submission_{what} is {getattr(other[0].facts, what)!r} "
                f"in {', '.join(log.path.name for log in other)}"
            )
            remedy = "put the logs where they belong, or correct the system description"
            yield Finding(what, "error", found, f"{here!r}, as the package says", remedy)


def _convergence(
    folder: Path, name: str, verdict: official_tools.Convergence, runs: Sequence[official_tools.Converged]
) -> Iterator[Finding]:
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


def _scaling(folder: Path, name: str, expected: float) -> Iterator[Finding]:
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
