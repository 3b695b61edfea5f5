"""Judge a package's system descriptions, by themselves and against the logs of their runs."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from compliance.ask import description
from compliance.ask.question import Question
from compliance.official import tools
from compliance.read.description import DIVISIONS, UnreadableDescription, load, texts
from compliance.read.run import RunFacts, as_integer
from compliance.rules.rule import Breach, Unchecked
from compliance.rules.submission import SYSTEM_DESCRIPTION, SYSTEM_DIVISION, SYSTEM_FIELDS

_COUNTS = (("number_of_nodes", 1), ("accelerators_per_node", 0))


def judge_description(path: Path, name: str, ruleset: str) -> Iterator[Breach | Unchecked]:
    """Yield the faults of a description, and counts that can't be read."""
    try:
        content, repeated = load(path)
    except UnreadableDescription as problem:
        yield SYSTEM_DESCRIPTION.breach(f"{name} {problem}", "a JSON object")
        return
    if repeated:
        yield SYSTEM_FIELDS.breach(f"{name}: repeated fields: {', '.join(repeated[:5])}", "each field once")
    for wrong in tools.description_problems(content, ruleset):
        yield SYSTEM_DESCRIPTION.breach(f"{name}: {wrong}", f"what ruleset {ruleset} requires")
    fields = texts(content)
    division = fields.get("division", "")
    if division.lower() not in DIVISIONS:
        yield SYSTEM_DIVISION.breach(f"{name}: division is {division[:80]!r}", "closed or open")
    for field, least in _COUNTS:
        value = fields.get(field, "")
        count = as_integer(value)
        if value and (count is None or count < least):
            reason = f"{name}: {field} {value[:80]!r} isn't a whole number of at least {least}"
            yield SYSTEM_DESCRIPTION.unchecked(reason)


def ask_about_names(name: str, described: dict[str, str], runs: Sequence[RunFacts]) -> list[Question]:
    """Ask, once per system, about names that differ between its description and its logs."""
    by_figure = {}
    for facts in runs:
        for question in description.ask_names(facts, described):
            figure = f"{name}: {question.figure}"
            by_figure[figure] = question._replace(figure=figure, line=None)
    return [*by_figure.values()]
