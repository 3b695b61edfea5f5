"""One result of a package: the runs of one benchmark on one system, judged one by one and together.

What is asked of the runs together is in MLPerf's training and submission rules: their number, one failure at most, a
seed each, the same settings, samples to converge no fewer than the reference's.
"""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from compliance import official_tools
from compliance.judge import LOG_PATTERN, Finding, Judgement, judge
from compliance.log import CannotJudge, Event, read_events
from compliance.score import olympic_mean

Severity = Literal["error", "warning"]
_SETTINGS = ("global_batch_size", "gradient_accumulation_steps", "num_warmup_steps", "start_warmup_step")
_PARAMETERS = "package_checker_params"
_MEND_RUNS = "run the benchmark again; of more runs, take ten that followed each other"


@dataclass(frozen=True)
class Result:
    """The verdict on one result; `time_to_train_s` is the mean of the runs that count, not yet scaled."""

    system: str
    benchmark: str
    division: str | None
    logs: tuple[Judgement, ...]
    events: tuple[tuple[Event, ...], ...]
    time_to_train_s: float | None
    convergence: official_tools.Convergence | None
    findings: tuple[Finding, ...]

    def as_json(self) -> dict[str, Any]:
        """The fields that `--json` prints."""
        return {
            "system": self.system,
            "benchmark": self.benchmark,
            "division": self.division,
            "time_to_train_s": self.time_to_train_s,
            "convergence": self.convergence and vars(self.convergence),
            "findings": [vars(finding) for finding in self.findings],
            "logs": [log.as_json() for log in self.logs],
        }


def judge_result(folder: Path, name: str, division: str | None, ruleset: str) -> Result:
    """Judge the logs in results/<system>/<benchmark>; `division` is the system description's."""
    paths = sorted(folder.glob(LOG_PATTERN), key=lambda path: (len(path.name), path.name))
    logs = tuple(judge(path, ruleset) for path in paths)
    events = tuple(tuple(_events(path)) for path in paths)
    passed = [_converged(log) for log in logs]
    times = [log.facts.time_to_train_s if ok and log.facts else None for log, ok in zip(logs, passed, strict=True)]
    findings = [
        *_number_of_runs(folder, name, len(paths)),
        *_failures(name, logs, passed),
        *_no_results(name, logs),
        *_belonging(name, folder.name, division, logs),
        *_seeds(name, division == "closed" and "seed-checker-bypass" not in _parameters(folder), paths, events),
        *_settings(name, events),
    ]
    convergence = None
    whole = len(logs) == official_tools.runs_per_result(folder.name) and all(log.facts for log in logs)
    if division == "closed" and ruleset >= official_tools.OLDEST_RCP_RULESET and whole:
        convergence = official_tools.convergence(paths, ruleset, by_train_samples=any(map(_counts_epochs, logs)))
        findings += _convergence(folder, name, convergence)
    findings += _scaling(folder, name, convergence.scaling if convergence else 1.0)
    return Result(
        system=folder.parent.name,
        benchmark=folder.name,
        division=division,
        logs=logs,
        events=events,
        time_to_train_s=None if all(time is None for time in times) else olympic_mean(times),
        convergence=convergence,
        findings=tuple(findings),
    )


def _events(path: Path) -> list[Event]:
    try:
        return read_events(path)
    except CannotJudge:
        return []  # the log's own judgement says so


def _converged(log: Judgement) -> bool:
    return log.verdict == "pass" and log.facts is not None and log.facts.status == "success"


def _counts_epochs(log: Judgement) -> bool:
    """Whether epoch_num can't be samples: some published logs hold epochs there, fewer than one batch has samples."""
    facts = log.facts
    batch = facts.global_batch_size if facts else None
    return facts is not None and facts.samples is not None and isinstance(batch, int | float) and facts.samples < batch


def _number_of_runs(folder: Path, name: str, runs: int) -> Iterator[Finding]:
    expected = official_tools.runs_per_result(folder.name)
    if runs != expected:
        found = f"{name}: {runs} {LOG_PATTERN}"
        yield Finding("runs", "error", None, found, f"exactly {expected}", _MEND_RUNS)
    known = {_PARAMETERS, "scaling.json"}
    others = sorted(p.name for p in folder.iterdir() if not p.match(LOG_PATTERN) and p.name not in known)
    if others:
        found = f"{name}: other entries: {', '.join(others[:5])}"
        yield Finding("runs", "warning", None, found, f"{LOG_PATTERN} only", "rename or remove them")


def _failures(name: str, logs: Sequence[Judgement], passed: Sequence[bool]) -> Iterator[Finding]:
    failed = [log.path.name for log, ok in zip(logs, passed, strict=True) if not ok]
    if failed:
        found = f"{name}: {len(failed)} of {len(logs)} runs failed: {', '.join(failed)}"
        severity: Severity = "warning" if len(failed) == 1 else "error"
        expected = "at most one, which is dropped as the slowest"
        yield Finding("failed-runs", severity, None, found, expected, _MEND_RUNS)


def _no_results(name: str, logs: Sequence[Judgement]) -> Iterator[Finding]:
    """One run may have failed, but it must have been one."""
    found = [log.path.name for log in logs if log.facts and log.facts.not_a_result]
    if found:
        told = f"{name}: runs that say they are no results: {', '.join(found)}"
        yield Finding("not-a-result", "error", None, told, "runs made to their end", _MEND_RUNS)


def _belonging(name: str, benchmark: str, division: str | None, logs: Sequence[Judgement]) -> Iterator[Finding]:
    for what, here in (("division", division), ("benchmark", benchmark)):
        other = [log for log in logs if here and log.facts and getattr(log.facts, what) != here]
        if other and other[0].facts:
            found = (
                f"{name}: submission_{what} is {getattr(other[0].facts, what)!r} "
                f"in {', '.join(log.path.name for log in other)}"
            )
            remedy = "put the logs where they belong, or correct the system description"
            yield Finding(what, "error", None, found, f"{here!r}, as the package says", remedy)


def _seeds(name: str, required: bool, paths: Sequence[Path], runs: Sequence[Sequence[Event]]) -> Iterator[Finding]:
    asked = "a seed of its own in every run, from the clock or /dev/urandom"
    first: dict[tuple[str, str, str], str] = {}
    for path, events in zip(paths, runs, strict=True):
        seeds = [event for event in events if event.key == "seed"]
        if not seeds and events:
            severity: Severity = "error" if required else "warning"
            yield Finding("seed", severity, None, f"{name}: {path.name} logs no seed", asked, "log the seed")
        for event in seeds:
            place = (str(event.metadata.get("file")), str(event.metadata.get("lineno")), str(event.value))
            if place in first and first[place] != path.name:
                found = f"{name}: {path.name} logs seed {place[2][:40]}, as {first[place]} does"
                yield Finding("seed", "error", event.line, found, asked, _MEND_RUNS)
            first.setdefault(place, path.name)


def _settings(name: str, runs: Sequence[Sequence[Event]]) -> Iterator[Finding]:
    values: dict[str, dict[str, None]] = {}  # a dict keeps the order, a set doesn't
    for event in (event for events in runs for event in events):
        if event.key in _SETTINGS or str(event.key).startswith("opt_"):
            values.setdefault(str(event.key), {})[repr(event.value)] = None
    for key, different in values.items():
        if len(different) > 1:
            severity: Severity = "error" if key == "global_batch_size" else "warning"
            found = f"{name}: {key} is {' and '.join(value[:40] for value in list(different)[:5])}"
            yield Finding("settings", severity, None, found, "one value in all runs of a result", _MEND_RUNS)


def _convergence(folder: Path, name: str, verdict: official_tools.Convergence) -> Iterator[Finding]:
    told = name if verdict.mean is None else f"{name}: mean samples to converge {verdict.mean:,.0f}"
    if not verdict.passed:
        expected = "agreement with the reference convergence points"
        if verdict.least_mean is not None:
            expected = f"at least {verdict.least_mean:,.0f}, which is plausible beside the reference"
        severity: Severity = "warning" if "rcp-bypass" in _parameters(folder) else "error"
        remedy = "run again, or submit a reference convergence point for this batch size"
        yield Finding("convergence", severity, None, f"{told}: {verdict.message}", expected, remedy)
    elif verdict.scaling > 1:
        expected = f"the reference's {verdict.reference_mean:,.0f}, or more"
        remedy = f"count the time to train {verdict.scaling:.4f} times, as the rules ask"
        yield Finding("convergence", "warning", None, told, expected, remedy)


def _scaling(folder: Path, name: str, expected: float) -> Iterator[Finding]:
    # result_summarizer multiplies the score by whatever the file says, in the open division too
    path = folder / "scaling.json"
    if not path.is_file():
        return
    try:
        factor = float(json.loads(path.read_text(encoding="utf-8"))["scaling_factor"])
    except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
        factor = math.nan
    if not math.isclose(factor, expected, rel_tol=1e-6):
        found = f"{name}/scaling.json: factor {factor}"
        yield Finding(
            "scaling", "error", None, found, f"{expected:.6f}", "remove the file: the official tool writes it"
        )


def _parameters(folder: Path) -> list[str]:
    """The lines by which a submitter asks the official checker for leniency, as it reads them: with their line ends."""
    lines: list[str] = []
    for path in (folder / _PARAMETERS, folder.parent / _PARAMETERS):
        if path.is_file():
            with path.open(encoding="utf-8", errors="replace") as file:
                lines += file.readlines(1 << 16)
    return lines
