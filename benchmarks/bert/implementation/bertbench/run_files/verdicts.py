"""Ask the judge for its verdicts on logs: the only file of the report that knows how the judge is called."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from compliance import asked_together, judge_log
from compliance.read.find import LOG_PATTERN
from compliance.read.record import printable
from compliance.read.run import RunFacts

if TYPE_CHECKING:
    from compliance.ask.question import Question
    from compliance.judge import Judgement
    from compliance.rules.rule import Breach


@dataclass(frozen=True)
class Finding:
    """What the judge found: an error is a breach, which decides its verdict; a question to the submitter doesn't."""

    severity: Literal["error", "question"]
    rule: str
    found: str
    expected: str
    remedy: str
    line: int | None = None
    """Counted from 1; None if no line is at fault."""


class Verdict(NamedTuple):
    """The judge's verdict on one log."""

    verdict: Literal["pass", "fail", "cannot-judge"] | None
    """None for a log that is no result: its run hasn't ended, or was a smoke test or a profile."""
    facts: RunFacts | None
    """Facts that the judge keeps of the log; None if it is none."""
    ruleset: str
    """By which it was judged."""
    findings: tuple[Finding, ...] = ()

    @property
    def is_log(self) -> bool:
        """Return whether the file is a log."""
        return self.facts is not None

    @property
    def decisive(self) -> list[Finding]:
        """Return the findings that decide the verdict."""
        return [found for found in self.findings if found.severity == "error"]


Verdicts = dict[Path, Verdict]
"""By log."""
Together = dict[Path, tuple[Finding, ...]]
"""Findings across runs, such as copies, by the folder of the runs."""


def verdicts(logs: Iterable[Path], ruleset: str | None) -> tuple[Verdicts, Together]:
    """Judge logs singly, and those of each folder together; without a ruleset, by the one that a log says."""
    folders: dict[Path, list[Judgement]] = defaultdict(list)
    for log in logs:
        folders[log.parent].append(judge_log(log, ruleset))
    singly = {run.path: _verdict(run) for runs in folders.values() for run in runs}
    return singly, {folder: tuple(_across(runs)) for folder, runs in folders.items()}


def verdict(log: Path, ruleset: str | None) -> Verdict:
    """Judge one log."""
    singly, _ = verdicts([log], ruleset)
    return singly[log]


def _verdict(run: "Judgement") -> Verdict:
    if not _is_result(run):
        return Verdict(None, run.facts, run.official.ruleset)
    findings = (*map(_of_breach, run.breaches), *map(_of_question, run.questions))
    return Verdict(run.verdict, run.facts, run.official.ruleset, findings)


def _is_result(run: "Judgement") -> bool:
    """Return whether the judge's findings mean something: an unfinished log breaks a rule for each missing event."""
    return run.facts is None or (run.facts.first("run_stop") is not None and run.facts.not_a_result is None)


def _across(runs: "Sequence[Judgement]") -> Iterator[Finding]:
    """Yield the questions about a folder's runs together; files of other names are no runs of a result."""
    results = [run for run in runs if run.path.match(LOG_PATTERN) and _is_result(run)]
    if len(results) < 2:
        return
    for run, asked in zip(results, asked_together(results), strict=True):
        for question in asked.questions[len(run.questions) :]:
            yield _of_question(question._replace(figure=f"{run.path.name}: {question.figure}", line=None))


def _of_breach(breach: "Breach") -> Finding:
    return Finding("error", breach.rule.id, breach.found, breach.expected, breach.rule.remedy, breach.line)


def _of_question(question: "Question") -> Finding:
    topic = question.topic
    return Finding("question", topic.id, question.figure, topic.usual, topic.asks, question.line)


def finding_text(where: str, found: Finding) -> str:
    """Return a finding in a line: where, how severe, the rule, what was found and what was expected."""
    place = where if found.line is None else f"{where}:{found.line}"
    return printable(f"{place}: {found.severity} {found.rule}: found {found.found}; expected: {found.expected}")


def no_log_text(log: str, found: Finding) -> str:
    """Return why a file is no log in a line; the judge's finding begins with the file's path."""
    return printable(f"{log}: no log: {found.found.removeprefix(f'{log}: ')}")
