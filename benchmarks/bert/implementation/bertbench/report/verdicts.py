"""Ask the judge for its verdicts on logs: the only file of the report that knows how the judge is called."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, NamedTuple

from compliance import alike, together
from compliance.finding import Finding
from compliance.judge import LOG_PATTERN, Judgement, judge
from compliance.record import printable
from compliance.run import RunFacts


class Verdict(NamedTuple):
    """The judge's verdict on one log."""

    verdict: Literal["pass", "fail", "cannot-judge"] | None
    """None for a log that is no result: its run hasn't ended, or was a smoke test or a profile."""
    facts: RunFacts | None
    """None if the file is no log."""
    findings: tuple[Finding, ...] = ()

    @property
    def decisive(self) -> list[Finding]:
        """Return the findings that decide the verdict: a warning is a question to the submitter."""
        return [finding for finding in self.findings if finding.severity == "error"]


Verdicts = dict[Path, Verdict]
"""By log."""
Together = dict[Path, tuple[Finding, ...]]
"""Findings across runs, such as copies, by the folder of the runs."""


def verdicts(logs: Iterable[Path], ruleset: str) -> tuple[Verdicts, Together]:
    """Judge logs singly, and those of each folder together."""
    folders: dict[Path, list[Judgement]] = defaultdict(list)
    for log in logs:
        folders[log.parent].append(judge(log, ruleset))
    singly = {run.path: _verdict(run) for runs in folders.values() for run in runs}
    return singly, {folder: tuple(_across(folder, runs, ruleset)) for folder, runs in folders.items()}


def _verdict(run: Judgement) -> Verdict:
    return Verdict(run.verdict, run.facts, run.findings) if _is_result(run) else Verdict(None, run.facts)


def _is_result(run: Judgement) -> bool:
    """Return whether the judge's findings mean something: an unfinished log breaks a rule for each missing event."""
    return run.facts is None or (run.facts.first("run_stop") is not None and run.facts.not_a_result is None)


def verdict(log: Path, ruleset: str) -> Verdict:
    """Judge one log."""
    singly, _ = verdicts([log], ruleset)
    return singly[log]


def _across(folder: Path, runs: Sequence[Judgement], ruleset: str) -> Iterator[Finding]:
    """Yield the findings on a folder's runs together; files of other names are no runs of a result."""
    results = [run for run in runs if run.path.match(LOG_PATTERN) and _is_result(run)]
    if len(results) < 2:
        return
    traces = [alike.trace(run.path.name, run.facts) for run in results]
    for finding in (*together.judge(folder, False, ruleset, results), *alike.copies(traces)):
        yield replace(finding, line=None)  # it names its logs; a line is one log's


def finding_text(where: str, finding: Finding) -> str:
    """Return a finding in a line: where, how severe, the rule, what was found and what was expected."""
    place = where if finding.line is None else f"{where}:{finding.line}"
    text = f"{place}: {finding.severity} {finding.rule}: found {finding.found}; expected: {finding.expected}"
    return printable(text)


def no_log_text(log: str, finding: Finding) -> str:
    """Return why a file is no log in a line; the judge's finding begins with the file's path."""
    return printable(f"{log}: no log: {finding.found.removeprefix(f'{log}: ')}")
