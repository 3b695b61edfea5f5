"""Judge one log by the official checker and by the rules, and collect the questions that a reviewer might ask."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from compliance import ask
from compliance.ask.question import NamedRun, Question
from compliance.official import DEFAULT_RULESET, checker
from compliance.official.ruleset import (
    accepted_rulesets,
    refused_ruleset,
    ruleset_hint,
    ruleset_of_log,
    ruleset_of_path,
)
from compliance.read import description
from compliance.read.case import Case
from compliance.read.description import DIVISIONS
from compliance.read.find import LOG_PATTERN, find_logs
from compliance.read.log import CannotJudge, Log
from compliance.read.run import RunFacts
from compliance.read.source import STDIN, open_plain
from compliance.rules import RULES
from compliance.rules.random_numbers import SEEDS, SEEDS_LOGGED_SINCE, equal_seeds
from compliance.rules.records import OFFICIAL, OFFICIAL_END, READABLE
from compliance.rules.rule import OLDEST_TEXT, Breach, Fault, Rule, Unchecked

Overall = Literal["pass", "fail", "cannot-judge"]
_SHOWN_FACTS = ("benchmark", "division", "time_to_train_s", "best_accuracy")
_MOST_OF_A_RULE = 5
"""Most breaches shown per rule: a faulty logger can break a rule on every line."""
_MOST_EVENTS = 5_000
"""Most events kept per key where many logs are judged; a run has some tens of evaluations."""
_EXPLAINED_BY = {"eval_accuracy": "target", checker.PARSING_ERRORS: "record"}
"""Messages of the official checker that name no line, by key or text; the rule reports the same fault with its line."""
_KEPT = frozenset(
    (
        *ask.settings.KEYS, "submission_platform", "submission_org", "submission_division", "submission_benchmark",
        "submission_status", "seed", "run_start", "run_stop", "eval_accuracy", "not_a_result",
    )
)  # fmt: skip
"""Keys whose events are kept where many logs are judged: those that the rules and questions about a result need."""


@dataclass(frozen=True)
class Judgement:
    """The verdict on one log; `facts` is None if the log cannot be judged.

    Only `breaches` decide the verdict, and with --strict also the missing evidence in `not_applied`. `questions` never
    do.
    """

    path: Path
    verdict: Overall
    official: checker.OfficialVerdict
    facts: RunFacts | None
    breaches: tuple[Breach, ...]
    questions: tuple[Question, ...] = ()
    not_applied: tuple[Unchecked, ...] = ()
    hint: str | None = None
    """The ruleset that fits better, if the log lacks keys of the one that was applied."""

    def kept(self) -> "Judgement":
        """Return this judgement with only the facts that a result needs, so that many of them fit into memory."""
        return replace(self, facts=self.facts and self.facts.only(_KEPT, _MOST_EVENTS))

    def asked(self, questions: Iterable[Question]) -> "Judgement":
        """Return this judgement with more questions; the verdict doesn't change."""
        return replace(self, questions=(*self.questions, *questions))

    def as_json(self) -> dict[str, Any]:
        """Return the fields that `--json` prints."""
        return {
            "path": str(self.path),
            "verdict": self.verdict,
            "official": {"ruleset": self.official.ruleset, "verdict": self.official.verdict},
            **{name: getattr(self.facts, name, None) for name in _SHOWN_FACTS},
            "findings": [breach.as_json() for breach in self.breaches],
            "questions": [question.as_json() for question in self.questions],
            "not_applied": [unchecked.as_json() for unchecked in self.not_applied],
            "hint": self.hint,
        }


def judge_log(
    path: Path, by_ruleset: str | None = None, division: str | None = None, strict: bool = False
) -> Judgement:
    """Return the verdict on one log, under the given ruleset or else under the one that the log indicates.

    `division` is the one that the log must be in. With `strict`, missing evidence fails the log.
    """
    try:
        with open_plain(path) as stream:
            return _judge(path, Log(stream, str(path)), by_ruleset, division, strict)
    except CannotJudge as problem:
        official = checker.OfficialVerdict(by_ruleset or DEFAULT_RULESET, "error")
        breach = READABLE.breach(str(problem), line=problem.line)
        return Judgement(path, "cannot-judge", official, facts=None, breaches=(breach,))


def _judge(path: Path, log: Log, by_ruleset: str | None, division: str | None, strict: bool) -> Judgement:
    described = {} if path == STDIN else description.fields_of_log(path)
    case = Case(log, by_ruleset or DEFAULT_RULESET, division, described)
    if by_ruleset is None:
        case.ruleset = ruleset_of_path(path) or ruleset_of_log(case) or DEFAULT_RULESET
    official = checker.check(log, case, case.ruleset)
    ours, not_applied = apply_rules(case)
    breaches = [*ours, *_official_breaches(official, case, ours)]
    has_no_single_meaning = any(breach.rule.doubtful for breach in breaches)
    crashes_unexplained = official.verdict == "error" and not ours
    lacks_evidence = any(unchecked.asked for unchecked in not_applied)
    verdict: Overall = "pass"
    if has_no_single_meaning or crashes_unexplained:
        verdict = "cannot-judge"
    elif breaches or (strict and lacks_evidence):
        verdict = "fail"
    return Judgement(
        path=path,
        verdict=verdict,
        official=official,
        facts=case,
        breaches=tuple(sorted(breaches, key=_line)),
        questions=tuple(ask.about_log(case)),
        not_applied=tuple(not_applied),
        hint=ruleset_hint(case, case.ruleset) if official.verdict == "fail" else None,
    )


def _line(breach: Breach) -> int:
    return breach.line or 0


def judge_logs(path: Path, ruleset: str | None, division: str | None, strict: bool) -> list[Judgement]:
    """Return the verdicts on a log, or on the logs in a folder; see `compliance.judge_logs`."""
    if ruleset is not None and ruleset not in accepted_rulesets():
        raise CannotJudge(f"ruleset {ruleset!r}: {refused_ruleset(ruleset)}")
    if division is not None and division not in DIVISIONS:
        raise CannotJudge(f"division {division!r}: expected {' or '.join(DIVISIONS)}")
    singly = (judge_log(log, ruleset, division, strict).kept() for log in find_logs(path))
    judgements: list[Judgement] = []
    for _, of_folder in groupby(singly, key=lambda judgement: judgement.path.parent):
        judgements += runs_compared(of_folder, strict)
    return judgements


def runs_compared(judgements: Iterable[Judgement], strict: bool) -> list[Judgement]:
    """Return the judgements of one folder's logs: its runs, compared with each other, and then other logs."""
    runs: list[Judgement] = []
    other_logs: list[Judgement] = []
    for judgement in judgements:
        is_run = judgement.path.match(LOG_PATTERN)
        (runs if is_run else other_logs).append(judgement)
    return [*seeds_compared(asked_together(runs), strict), *other_logs]


def asked_together(judgements: Sequence[Judgement]) -> list[Judgement]:
    """Return the judgements of a result's runs, with the questions that compare the runs; no verdict changes."""
    runs = [NamedRun(log.path.name, log.facts) for log in judgements if log.facts is not None]
    questions = ask.about_runs(runs)
    return [log if log.facts is None else log.asked(questions.get(log.path.name, [])) for log in judgements]


def seeds_compared(judgements: Sequence[Judgement], strict: bool) -> list[Judgement]:
    """Return the judgements of one folder's logs, with a note on each closed log that has the seed of another.

    The rule decides only in a package: it isn't known whether the logs of a folder belong to one result.
    """
    closed = {
        judgement.path.name: judgement.facts
        for judgement in judgements
        if judgement.facts and judgement.facts.division == "closed" and judgement.official.ruleset >= SEEDS_LOGGED_SINCE
    }
    equal = equal_seeds(closed)
    with_seeds = []
    for judgement in judgements:
        if judgement.facts is None or judgement.path.name not in equal:
            with_seeds.append(judgement)
            continue
        reason = f"{equal[judgement.path.name]}; the runs of a result may not share a seed, so judge them as a package"
        with_seeds.append(_with_missing_evidence(judgement, SEEDS.unchecked(reason), strict))
    return with_seeds


def _with_missing_evidence(judgement: Judgement, missing: Unchecked, strict: bool) -> Judgement:
    """Return a judgement that notes missing evidence; with `strict`, a log that passed now fails."""
    fails = strict and judgement.verdict == "pass"
    return replace(
        judgement,
        not_applied=(*judgement.not_applied, missing),
        verdict="fail" if fails else judgement.verdict,
    )


def apply_rules(case: Case) -> tuple[list[Breach], list[Unchecked]]:
    """Apply every rule to a log; return its breaches, and what could not be checked, with the reason."""
    breaches: list[Breach] = []
    not_applied: list[Unchecked] = []
    for rule in RULES:
        if rule.check is None:
            continue
        if not rule.applies_to(case.ruleset):
            not_applied.append(rule.unchecked(_reason(rule, case.ruleset), asked=False))
            continue
        faults = []
        for result in rule.check(case):
            if isinstance(result, Fault):
                faults.append(result)
            else:
                not_applied.append(rule.unchecked(result.reason, result.asked))
        breaches += _shown(rule, faults)
    return breaches, not_applied


def _reason(rule: Rule, by_ruleset: str) -> str:
    if by_ruleset < OLDEST_TEXT:
        return f"the judge knows the rules' text from {OLDEST_TEXT} on, and the checker of this round has no such test"
    return f'not a rule in round {by_ruleset}; "{rule.source.section}" has it in rounds {rule.rounds}'


def _shown(rule: Rule, faults: Sequence[Fault]) -> list[Breach]:
    """Return the first breaches of a rule; if there are more, the last one shown says how many."""
    shown = [rule.breach(fault.found, fault.expected, fault.line) for fault in faults[:_MOST_OF_A_RULE]]
    more = len(faults) - len(shown)
    if more:
        shown[-1] = shown[-1]._replace(found=f"{shown[-1].found}, and {more:,} more")
    return shown


def _official_breaches(verdict: checker.OfficialVerdict, facts: RunFacts, ours: Sequence[Breach]) -> list[Breach]:
    """Return the official checker's messages as breaches, except for those that a rule already explains."""
    lines = {breach.line for breach in ours if breach.line is not None}
    broken = {breach.rule.id for breach in ours}
    breaches = []
    for message, count in Counter(verdict.messages).items():
        if message.line is None:
            is_explained = _EXPLAINED_BY.get(message.key or message.text) in broken
        else:
            is_explained = message.line in lines
        if is_explained:
            continue
        expected = message.test or f"what ruleset {verdict.ruleset} requires"
        place = checker.place_of_rule(verdict.ruleset, facts.division, message.key)
        if place:
            expected += f", by {place}"
        text = message.text if count == 1 else f"{message.text}, {count:,} times"
        has_no_end = message.key == "run_stop" and facts.first("run_stop") is None
        rule = OFFICIAL_END if has_no_end else OFFICIAL
        breaches.append(rule.breach(text, expected, message.line))
    return breaches
