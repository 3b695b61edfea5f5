"""Format judgements for a terminal: verdict, breaches by line, questions for the submitter, and what wasn't checked."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from compliance.ask.question import Question
from compliance.judge import Judgement
from compliance.read.record import printable
from compliance.rules.rule import Breach, Rule, Source, Unchecked

if TYPE_CHECKING:  # these import official tools, which a log doesn't need
    from compliance.package.package import PackageJudgement
    from compliance.package.result import Result

_QUESTIONS = "  Questions for the submitter:"
_MOST_LOGS_NAMED = 10


def printed(lines: Iterable[str]) -> str:
    """Join lines to one text, without the control characters that could steer a terminal."""
    return "\n".join(map(printable, lines))


def kind(judgement: Judgement) -> str:
    """Return the word for a log in the summary: its verdict, or "no result" for a run with --smoke or --profile."""
    if judgement.facts is not None and judgement.facts.not_a_result:
        return "no result"
    return judgement.verdict


def of_log(judgement: Judgement, strict: bool, said_of_all: Sequence[Unchecked] = ()) -> list[str]:
    """Return the lines about one log, without the notes that are `said_of_all` logs in its folder.

    With `strict`, missing evidence is shown as what fails the log.
    """
    facts = judgement.facts
    lines = [f"{kind(judgement).upper():<12} {judgement.path}"]
    if facts is not None:
        benchmark = facts.benchmark or "no benchmark"
        time = "unknown" if facts.time_to_train_s is None else f"{facts.time_to_train_s:.1f} s"
        best = "none" if facts.best_accuracy is None else f"{facts.best_accuracy:.4f}"
        lines += [
            f"  {benchmark}, {_division(facts.division)}, ruleset {judgement.official.ruleset}: "
            f"official {judgement.official.verdict}",
            f"  time to train {time}, best accuracy {best}, run {facts.status or 'unfinished'}",
        ]
    if judgement.hint:
        lines.append(f"  {judgement.hint}")
    lines += _breaches([(str(judgement.path), breach) for breach in judgement.breaches])
    lines += _questions([(str(judgement.path), question) for question in judgement.questions])
    own = [unchecked for unchecked in judgement.not_applied if unchecked not in said_of_all]
    return lines + [f"  {line}" for line in _not_applied(own, strict, "log")]


def of_all_logs(said_of_all: Sequence[Unchecked], strict: bool, judged: int, logs: int) -> list[str]:
    """Return the lines about what couldn't be checked in any of the `judged` logs, out of a folder's `logs`."""
    return _not_applied(said_of_all, strict, "log", f", in {judged:,} of {logs:,} logs")


def _not_applied(rules: Iterable[Unchecked], strict: bool, judged: str, where: str = "") -> list[str]:
    """Return one line for each rule that was not applied, with the reason, and without repetitions."""
    lines = []
    for unchecked in rules:
        if strict and unchecked.asked:
            reason = f"{unchecked.reason} (--strict fails a {judged} without it)"
            lines.append(f"missing evidence{where}: {unchecked.rule}: {reason}")
        else:
            lines.append(f"not applied{where}: {unchecked.rule}: {unchecked.reason}")
    return list(dict.fromkeys(lines))


def _breaches(breaches: Sequence[tuple[str, Breach]]) -> list[str]:
    """Return two lines per breach: what was found and where, and what the rule says. Each remedy is printed once."""
    lines = []
    with_remedy: set[Rule] = set()
    for place, breach in breaches:
        where = place if breach.line is None else f"{place}:{breach.line}"
        found = breach.found.removeprefix(f"{place}: ").removeprefix("found ")  # messages about files begin so
        lines.append(f"  {where}: error {breach.rule.id}: found {found}")
        says = f"    expected: {breach.expected} ({_cited(breach.rule)})"
        lines.append(says if breach.rule in with_remedy else f"{says}; remedy: {breach.rule.remedy}")
        with_remedy.add(breach.rule)
    return lines


def _cited(rule: Rule) -> str:
    """Return a rule's document, rounds and section, such as: training_rules.adoc 1.0 to 5.0, "Run Results"."""
    return f"{rule.source.document} {rule.rounds}".strip() + f', "{rule.source.section}"'


def _questions(questions: Sequence[tuple[str, Question]]) -> list[str]:
    """Return the questions with their figures; a question that several logs raise is printed once."""
    if not questions:
        return []
    places: dict[tuple[str, str, str], list[str]] = {}
    for place, question in questions:
        where = place if question.line is None else f"{place}:{question.line}"
        places.setdefault((question.topic.id, question.figure, question.topic.usual), []).append(where)
    lines = [_QUESTIONS]
    for (topic, figure, usual), logs in places.items():
        others = ""
        if len(logs) == 2:
            others = " and 1 other log"
        elif len(logs) > 2:
            others = f" and {len(logs) - 1} other logs"
        lines += [f"  {logs[0]}{others}: {topic}: {figure}", f"    usual: {usual}"]
    return lines


def summary_line(judgements: Sequence[Judgement]) -> str | None:
    """Return the last line: the number of logs by verdict, the names of those that don't pass, and the questions."""
    questions = sum(len(judgement.questions) for judgement in judgements)
    if len(judgements) < 2 and not questions:
        return None
    parts = []
    for name in ("pass", "fail", "cannot-judge", "no result"):
        paths = [str(judgement.path) for judgement in judgements if kind(judgement) == name]
        if paths and name == "pass":
            parts.append(f"{len(paths)} pass")
        elif paths:
            parts.append(f"{len(paths)} {name} ({shortened(paths)})")
    if questions:
        parts.append("1 question" if questions == 1 else f"{questions} questions")
    return ", ".join(parts)


def shortened(paths: Sequence[str]) -> str:
    """Return the first paths, and the number of further ones."""
    names = ", ".join(paths[:_MOST_LOGS_NAMED])
    more = len(paths) - _MOST_LOGS_NAMED
    return f"{names}, and {more:,} more" if more > 0 else names


def of_package(judgement: "PackageJudgement") -> str:
    """Return the verdict on a package as text."""
    lines = [f"{judgement.verdict.upper():<12} {judgement.path}"]
    questions = [(str(judgement.path), question) for question in judgement.questions]
    for result in judgement.results:
        lines += _of_result(result)
        questions += [(_place(result, log), question) for log in result.logs for question in log.questions]
    lines += _breaches([(str(judgement.path), breach) for breach in judgement.all_breaches()])
    for result in judgement.results:
        shown = _breaches([(_place(result, log), breach) for log in result.logs for breach in log.breaches])
        if judgement.verdict == "pass":  # one run may fail, so these breaches don't decide
            shown = [line.replace(": error ", ": tolerated ", 1) for line in shown]
        lines += shown
    lines += _questions(questions)
    lines += [f"  {line}" for line in _not_applied(judgement.all_not_applied(), judgement.strict, "package")]
    return printed(lines)


def _division(division: str | None) -> str:
    return f"{division} division" if division else "no division"


def _place(result: "Result", log: Judgement) -> str:
    return f"{result.system}/{result.benchmark}/{log.path.name}"


def _of_result(result: "Result") -> list[str]:
    passed = sum(log.verdict == "pass" for log in result.logs)
    time = "unknown" if result.time_to_train_s is None else f"{result.time_to_train_s:.1f} s"
    energy = "" if result.energy_j is None else f", energy {result.energy_j:,.0f} J"
    scaled = f", scaled by {result.convergence.scaling:.4f}" if result.convergence else ""
    lines = [
        f"  {result.system}, {result.benchmark}, {_division(result.division)}, ruleset {result.ruleset}: "
        f"{passed} of {len(result.logs)} logs pass, time to train {time}{energy}{scaled}"
    ]
    convergence = result.convergence
    if convergence and convergence.mean is not None and convergence.reference_mean is not None and convergence.passed:
        lines.append(
            f"  {result.system}: mean samples to converge {convergence.mean:,.0f}, in the reference "
            f"{convergence.reference_mean:,.0f}; the rules multiply the time to train by {convergence.scaling:.4f}"
        )
    if result.failed_run and len(result.logs) > 1:
        lines.append(f"  {result.system}: {result.failed_run} failed and is dropped as the slowest run")
    return lines


def rules_table(rules: Sequence[Rule]) -> list[str]:
    """Return the lines about rules that `python -m compliance rules` prints, by document and section."""
    by_source: dict[Source, list[Rule]] = {}
    for rule in rules:
        by_source.setdefault(rule.source, []).append(rule)
    lines: list[str] = []
    for source, of_source in by_source.items():
        lines.append(f"{source.document}, {source.section}")
        for rule in of_source:
            rounds = f"rounds {rule.rounds}" if rule.rounds else "any round"
            lines += [f"  {rule.id} ({rounds}): {rule.says}", f"    remedy: {rule.remedy}"]
    return lines
