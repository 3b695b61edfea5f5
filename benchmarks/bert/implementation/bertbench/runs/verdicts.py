"""Get the judge's verdicts on logs. No other file of bertbench's reports calls the judge."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from compliance import asked_together, judge_log
from compliance.read.find import LOG_PATTERN
from compliance.read.record import printable
from compliance.read.run import RunFacts

if TYPE_CHECKING:
    from compliance.ask.question import Question
    from compliance.judge import Judgement
    from compliance.rules.rule import Breach


@dataclass(frozen=True)
class JudgeFinding:
    """A finding of the judge: an error breaks a rule and decides the verdict; a question to the submitter doesn't."""

    severity: Literal["error", "question"]
    rule: str
    found: str
    expected: str
    remedy: str
    line: int | None = None
    """The line of the log, counted from 1; None if no single line is at fault."""


@dataclass(frozen=True)
class Verdict:
    """The judge's verdict on one log."""

    verdict: Literal["pass", "fail", "cannot-judge"] | None
    """None for a log that isn't a result: its run hasn't ended, or was a smoke test or a profile."""
    facts: RunFacts | None
    """Facts that the judge read from the log; None if the file isn't a log."""
    ruleset: str
    """The ruleset by which the log was judged."""
    findings: tuple[JudgeFinding, ...] = ()

    @property
    def is_log(self) -> bool:
        """Return whether the file is a log at all."""
        return self.facts is not None

    @property
    def decisive(self) -> list[JudgeFinding]:
        """Return the findings that decide the verdict."""
        return [finding for finding in self.findings if finding.severity == "error"]


Verdicts = dict[Path, Verdict]
"""By log."""
Together = dict[Path, tuple[JudgeFinding, ...]]
"""Findings across runs, such as copies, by the folder of the runs."""


def verdicts_on(logs: Iterable[Path], ruleset: str | None) -> tuple[Verdicts, Together]:
    """Judge each log, and the logs of each folder together; without a ruleset, use the one that a log names."""
    folders: dict[Path, list[Judgement]] = defaultdict(list)
    for log in logs:
        folders[log.parent].append(judge_log(log, ruleset))
    singly = {run.path: _verdict(run) for runs in folders.values() for run in runs}
    together = {folder: tuple(_across(runs)) for folder, runs in folders.items()}
    return singly, together


def verdict_on(log: Path, ruleset: str | None) -> Verdict:
    """Judge one log; without a ruleset, use the one that the log names."""
    return _verdict(judge_log(log, ruleset))


def _verdict(run: "Judgement") -> Verdict:
    if not _is_result(run):
        return Verdict(None, run.facts, run.official.ruleset)
    breaches = [_of_breach(breach) for breach in run.breaches]
    questions = [_of_question(question) for question in run.questions]
    return Verdict(run.verdict, run.facts, run.official.ruleset, (*breaches, *questions))


def _is_result(run: "Judgement") -> bool:
    """Return whether the judge's findings are meaningful: an unfinished log breaks a rule for each missing event."""
    return run.facts is None or (run.facts.first("run_stop") is not None and run.facts.not_a_result is None)


def _across(runs: "Sequence[Judgement]") -> Iterator[JudgeFinding]:
    """Yield the questions about all runs of a folder; only files named result_<n>.txt are runs of a result."""
    results = [run for run in runs if run.path.match(LOG_PATTERN) and _is_result(run)]
    if len(results) < 2:
        return
    for run, asked in zip(results, asked_together(results), strict=True):
        asked_across = asked.questions[len(run.questions) :]
        for question in asked_across:
            yield _of_question(question._replace(figure=f"{run.path.name}: {question.figure}", line=None))


def _of_breach(breach: "Breach") -> JudgeFinding:
    return JudgeFinding("error", breach.rule.id, breach.found, breach.expected, breach.rule.remedy, breach.line)


def _of_question(question: "Question") -> JudgeFinding:
    topic = question.topic
    return JudgeFinding("question", topic.id, question.figure, topic.usual, topic.asks, question.line)


def finding_text(where: str, finding: JudgeFinding) -> str:
    """Return a finding as one line: where it is, its severity, the rule, what was found and what was expected."""
    place = where if finding.line is None else f"{where}:{finding.line}"
    text = f"{place}: {finding.severity} {finding.rule}: found {finding.found}; expected: {finding.expected}"
    return printable(text)


def reached_text(counted: int, not_passed: int, runs: int) -> str:
    """Return how many runs reached the target: those that count, and those whose logs the judge doesn't pass."""
    text = f"{counted + not_passed} of {runs} runs reached the target"
    if not not_passed:
        return text
    logs = "a log" if not_passed == 1 else "logs"
    return f"{text}, but {not_passed} in {logs} that the judge doesn't pass, so {counted} count"


def no_log_text(log: str, finding: JudgeFinding) -> str:
    """Return why a file isn't a log, in a line; the judge's finding begins with the file's path."""
    return printable(f"{log}: not a log: {finding.found.removeprefix(f'{log}: ')}")
