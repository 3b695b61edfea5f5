"""Read runs and get the judge's verdicts on their logs. No other file of bertbench's reports calls the judge."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from bertbench.runs.run_summary import MISSED, NO_LOG, RunSummary, is_empty, summary_of
from compliance import asked_together, judge_log
from compliance.read.find import LOG_PATTERN
from compliance.read.log import read_events
from compliance.read.record import printable
from compliance.read.source import CannotJudge

if TYPE_CHECKING:
    from compliance.ask.question import Question
    from compliance.judge import Judgement
    from compliance.rules.rule import Breach

_TARGET_RULE = "target"  # the judge's, for the accuracy of closed runs


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
class JudgedRun:
    """A run with the judge's verdict on its log."""

    run: RunSummary
    verdict: Literal["pass", "fail", "cannot-judge"] | None
    """None for a log that isn't a result: its run hasn't ended, can be resumed, or was a smoke test or a profile."""
    ruleset: str
    """The ruleset by which the log was judged."""
    findings: tuple[JudgeFinding, ...] = ()

    @property
    def is_log(self) -> bool:
        """Return whether the file is a log at all."""
        return self.run.status != NO_LOG

    @property
    def why_no_log(self) -> str:
        """Return why a file without MLPerf lines isn't a log, or isn't one yet."""
        if self.findings:
            return self.findings[0].found
        try:
            read_events(self.run.log)
        except CannotJudge as problem:
            return str(problem)
        return ""

    @property
    def reached(self) -> bool:
        """Return whether the run reached its target and counts: both its log and the judge must say so."""
        return self.verdict == "pass" and self._ended_at_target

    @property
    def reached_not_passed(self) -> bool:
        """Return whether the run reached its target, but the judge doesn't pass its log for another reason."""
        not_passed = self.verdict in ("fail", "cannot-judge")
        return not_passed and self._ended_at_target and bool(self.run.evaluations)

    @property
    def _ended_at_target(self) -> bool:
        return self.run.status == "success" and self.run.not_a_result is None

    @property
    def decisive(self) -> list[JudgeFinding]:
        """Return the findings that decide the verdict."""
        return [finding for finding in self.findings if finding.severity == "error"]

    def fields(self) -> dict[str, Any]:
        """Return what `bertbench report --json` and the tables of runs show."""
        run = self.run
        commit = run.origin.get("commit")
        return {
            "log": str(run.log),
            "system": run.system,
            "is_log": self.is_log,
            "status": run.status,
            "verdict": self.verdict,
            "reached": self.reached,
            "reached_not_passed": self.reached_not_passed,
            "not_a_result": run.not_a_result,
            "seed": run.seed,
            "commit": commit if isinstance(commit, str) else None,
            "started": run.started,
            "time_to_train_s": run.time_to_train_s,
            "samples": run.samples,
            "samples_from": run.samples_from,
            "samples_per_s": run.samples_per_s,
            "best_accuracy": run.best_accuracy,
            "target": run.target,
            "evaluations": len(run.evaluations),
            "startup_s": run.startup_s,
            "steps_s": run.steps_s,
            "evaluation_s": run.evaluation_s,
            "startup": run.startup,
            "ledger": run.ledger,
            "energy": run.energy,
            "load_efficiency": run.load_efficiency,
            "tflops_per_device": run.flops.tflops_per_device,
            "mfu": run.flops.mfu,
            "flops": run.flops,
            "use": run.use,
            "bubble": run.bubble,
            "bubble_of_equal_stages": run.bubble_of_equal_stages,
            "straggler": run.straggler,
            "findings": self.findings,
        }


Together = dict[Path, tuple[JudgeFinding, ...]]
"""Findings across runs, such as copies, by the folder of the runs."""


def judged_runs(logs: Iterable[Path], ruleset: str | None) -> tuple[list[JudgedRun], Together]:
    """Read and judge each log, and the logs of each folder together; by default by the ruleset that a log names."""
    judgements = [judge_log(log, ruleset) for log in logs]
    folders: dict[Path, list[Judgement]] = defaultdict(list)
    for judgement in judgements:
        folders[judgement.path.parent].append(judgement)
    together = {folder: tuple(_across(runs)) for folder, runs in folders.items()}
    return [*map(_judged, judgements)], together


def _judged(judgement: "Judgement") -> JudgedRun:
    run = summary_of(judgement.path, judgement.facts)
    ruleset = judgement.official.ruleset
    if not _is_result(judgement):
        return JudgedRun(run, None, ruleset)
    findings = [*map(_of_breach, judgement.breaches), *map(_of_question, judgement.questions)]
    judged = JudgedRun(run, judgement.verdict, ruleset, tuple(findings))
    if run.facts.status == "success" and run.facts.division == "closed" and judged.verdict != "cannot-judge":
        missed = any(finding.rule == _TARGET_RULE for finding in judged.decisive)  # the judge knows each round's target
        judged = replace(judged, run=replace(run, status=MISSED if missed else "success"))
    return judged


def _is_result(judgement: "Judgement") -> bool:
    """Return whether the judge's findings are meaningful: an unfinished log breaks a rule for each missing event."""
    facts = judgement.facts
    if facts is None:
        return not is_empty(judgement.path)
    stop = facts.first("run_stop")
    return stop is not None and not stop.metadata.get("interrupted") and facts.not_a_result is None


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


def no_log_text(judged: JudgedRun) -> str:
    """Return why a file isn't a log, in a line; the reason begins with the file's path."""
    return printable(f"{judged.run.log}: not a log: {judged.why_no_log.removeprefix(f'{judged.run.log}: ')}")
