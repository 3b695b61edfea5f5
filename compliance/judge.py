"""Find logs; judge each by the official checker and by our rules; return a verdict per log."""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Literal

from compliance import description, official
from compliance.finding import Breach, Case, Finding, Findings, Rule, Severity
from compliance.log import CannotJudge, Log
from compliance.rules import OFFICIAL, READABLE, RULES
from compliance.run import RunFacts
from compliance.source import STDIN, open_plain

LOG_PATTERN = "result_*.txt"
Overall = Literal["pass", "fail", "cannot-judge"]
_SHOWN_FACTS = ("benchmark", "division", "time_to_train_s", "best_accuracy")
_MOST_OF_A_RULE = 5  # findings shown per rule; a broken writer can break a rule on every line


@dataclass(frozen=True)
class Judgement:
    """The verdict on one log; `facts` is None if the log cannot be judged.

    `notes` are findings of severity info: facts that the log doesn't give, and legal but unusual values. They never
    fail a log.
    """

    path: Path
    verdict: Overall
    official: official.OfficialVerdict
    facts: RunFacts | None
    findings: tuple[Finding, ...]
    notes: tuple[Finding, ...] = ()
    not_applied: tuple[tuple[str, str], ...] = ()
    """Rules that the log switches off, each with the reason."""

    def as_json(self) -> dict[str, Any]:
        """Return the fields that `--json` prints."""
        return {
            "path": str(self.path),
            "verdict": self.verdict,
            "official": {"ruleset": self.official.ruleset, "verdict": self.official.verdict},
            **{name: getattr(self.facts, name, None) for name in _SHOWN_FACTS},
            "findings": self.findings,
            "notes": self.notes,
            "not_applied": [{"rule": rule, "reason": reason} for rule, reason in self.not_applied],
        }


def find_logs(path: Path) -> list[Path]:
    """Return the path itself, or a folder's result_*.txt at any level, without following links to folders.

    A folder without any, and a name of nothing, stand for the log that is called so with .txt: `named_run`.
    Raises CannotJudge if nothing is at the path, or no log is in the folder.
    """
    if path == STDIN:
        return [path]
    try:
        if not path.is_dir() and (path.exists() or not named_run(path)):
            path.lstat()
            return [path]
    except (OSError, ValueError) as error:
        raise CannotJudge(f"{path}: found nothing there; give a log or a folder of logs") from error
    logs = logs_below(path, lambda name: fnmatch(name, LOG_PATTERN))
    if not logs:
        raise CannotJudge(f"{path}: found no {LOG_PATTERN} in the folder; give a folder of logs")
    return logs


def logs_below(path: Path, is_log: Callable[[str], bool]) -> list[Path]:
    """Return a folder's logs at any level, by folder and number, or the log of the run that the path names."""
    found = (Path(folder, name) for folder, _, names in os.walk(path) for name in names if is_log(name))
    return sorted(found, key=lambda log: (log.parent, len(log.name), log.name)) or named_run(path)


def named_run(path: Path) -> list[Path]:
    """Return the log of the run that a path names without .txt, as the folder beside the log does; nothing if none."""
    log = Path(f"{path}.txt")
    return [log] if log.is_file() else []


def is_package(path: Path) -> bool:
    """Return whether a folder has a package's layout."""
    return (path / "results").is_dir() and (path / "systems").is_dir()


def judge(path: Path, ruleset: str, division: str | None = None, strict: bool = False) -> Judgement:
    """Return the verdict on one log under one ruleset; with `strict`, warnings fail it."""
    try:
        with open_plain(path) as stream:
            return _judged(path, Log(stream, str(path)), ruleset, division, strict)
    except CannotJudge as problem:
        found = Finding(READABLE.id, "error", str(problem), READABLE.sentence, READABLE.remedy, problem.line)
        return Judgement(path, "cannot-judge", official.OfficialVerdict(ruleset, "error"), None, (found,))


def _judged(path: Path, log: Log, ruleset: str, division: str | None, strict: bool) -> Judgement:
    facts = RunFacts(log.events)
    case = Case(log, ruleset, division, {} if path == STDIN else description.of_log(path))
    verdict = official.check(log, facts, ruleset)
    ours = [found for rule in RULES if rule.check for found in _shown(rule, rule.check(case))]
    failed = any(finding.severity == "error" for finding in ours)
    findings = [*_official_findings(verdict, facts), *(finding for finding in ours if finding.severity != "info")]
    notes = tuple(finding for finding in ours if finding.severity == "info")
    doubtful = {rule.id for rule in RULES if rule.severity == "cannot-judge"}
    overall: Overall = "pass"
    if doubtful & {finding.rule for finding in ours} or (verdict.verdict == "error" and not failed):
        overall = "cannot-judge"
    elif failed or verdict.verdict == "fail" or (strict and findings):
        overall = "fail"
    return Judgement(path, overall, verdict, facts, tuple(findings), notes, tuple(case.not_applied))


def _shown(rule: Rule, breaches: Iterable[Breach]) -> list[Finding]:
    """Return the first breaches of a rule, in their order; an error displaces an earlier, milder breach."""
    usual: Severity = "error" if rule.severity == "cannot-judge" else rule.severity
    found = [
        Finding(rule.id, one.severity or usual, one.found, one.expected or rule.sentence, rule.remedy, one.line)
        for one in breaches
    ]
    kept = sorted(range(len(found)), key=lambda index: found[index].severity != "error")[:_MOST_OF_A_RULE]
    shown = [found[index] for index in sorted(kept)]
    if more := len(found) - len(shown):
        shown[-1] = replace(shown[-1], found=f"{shown[-1].found}, and {more:,} more")
    return shown


def once(runs: Sequence[Judgement]) -> tuple[list[Judgement], list[Finding]]:
    """Return a result's runs without the warnings and notes that all have, and these: they are asked about once."""
    found = [[*run.findings, *run.notes] for run in runs]
    rules = [{(one.rule, one.severity) for one in run if one.severity != "error"} for run in found]
    common = set.intersection(*rules) if len(runs) > 1 else set()

    def own(findings: Iterable[Finding]) -> tuple[Finding, ...]:
        return tuple(one for one in findings if (one.rule, one.severity) not in common)

    shared = {one.rule: one for one in reversed(found[0]) if one not in own(found[0])} if runs else {}
    left = [replace(run, findings=own(run.findings), notes=own(run.notes)) for run in runs]
    texts = [replace(one, line=None, found=f"in all {len(runs)} runs: {one.found}") for one in shared.values()]
    return left, texts[::-1]


def _official_findings(verdict: official.OfficialVerdict, facts: RunFacts) -> Findings:
    for message in verdict.messages:
        expected = message.test or f"what ruleset {verdict.ruleset} asks for"
        place = official.place_of_rule(verdict.ruleset, facts.division, message.key)
        expected += f" ({place})" if place else ""
        yield Finding(OFFICIAL.id, "error", message.text, expected, OFFICIAL.remedy, message.line)
