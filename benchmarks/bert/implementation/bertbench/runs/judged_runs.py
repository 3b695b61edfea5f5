"""Read runs and get the judge's verdicts on their logs. No other file of bertbench's reports calls the judge."""

from collections import defaultdict
from collections.abc import Iterable
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
class JudgedRun:
    """A run with the judge's verdict on its log."""

    run: RunSummary
    verdict: Literal["pass", "fail", "cannot-judge"] | None
    """None for a log that isn't a result: its run hasn't ended, can be resumed, or was a smoke test or a profile."""
    ruleset: str
    """The ruleset by which the log was judged."""
    breaches: tuple["Breach", ...] = ()
    """What decides the verdict."""
    questions: tuple["Question", ...] = ()
    """What a reviewer might ask about the log, alone or among the runs of its folder; they don't affect the verdict."""

    @property
    def is_log(self) -> bool:
        """Return whether the file is a log at all."""
        return self.run.status != NO_LOG

    @property
    def why_no_log(self) -> str:
        """Return why a file without MLPerf lines isn't a log, or isn't one yet."""
        if self.breaches:
            return self.breaches[0].found
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
            "findings": [breach.as_json() for breach in self.breaches],
            "questions": [question.as_json() for question in self.questions],
        }


def judged_runs(logs: Iterable[Path], ruleset: str | None) -> list[JudgedRun]:
    """Read and judge each log, and compare the runs of each folder; by default by the ruleset that a log names."""
    judgements = {log: judge_log(log, ruleset) for log in logs}
    results_of_folder: dict[Path, list[Judgement]] = defaultdict(list)
    for judgement in judgements.values():
        if judgement.path.match(LOG_PATTERN) and _is_result(judgement):
            results_of_folder[judgement.path.parent].append(judgement)
    for results in results_of_folder.values():
        judgements |= {judgement.path: judgement for judgement in asked_together(results)}
    return [*map(_judged, judgements.values())]


def _judged(judgement: "Judgement") -> JudgedRun:
    run = summary_of(judgement.path, judgement.facts)
    ruleset = judgement.official.ruleset
    if not _is_result(judgement):
        return JudgedRun(run, None, ruleset)
    judged = JudgedRun(run, judgement.verdict, ruleset, judgement.breaches, judgement.questions)
    if run.facts.status == "success" and run.facts.division == "closed" and judged.verdict != "cannot-judge":
        missed = any(breach.rule.id == _TARGET_RULE for breach in judged.breaches)  # it knows each round's target
        judged = replace(judged, run=replace(run, status=MISSED if missed else "success"))
    return judged


def _is_result(judgement: "Judgement") -> bool:
    """Return whether the judge's findings are meaningful: an unfinished log breaks a rule for each missing event."""
    facts = judgement.facts
    if facts is None:
        return not is_empty(judgement.path)
    stop = facts.first("run_stop")
    return stop is not None and not stop.metadata.get("interrupted") and facts.not_a_result is None


def breach_text(log: str, breach: "Breach") -> str:
    """Return a breach as one line: where it is, the rule, what was found and what was expected."""
    text = f"error {breach.rule.id}: found {breach.found}; expected: {breach.expected}"
    return printable(f"{_place(log, breach.line)}: {text}")


def question_text(log: str, question: "Question") -> str:
    """Return a question to the submitter as one line: where it arises, its topic, the figure, and what is usual."""
    text = f"question {question.topic.id}: {question.figure}; usual: {question.topic.usual}"
    return printable(f"{_place(log, question.line)}: {text}")


def _place(log: str, line: int | None) -> str:
    return log if line is None else f"{log}:{line}"


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
