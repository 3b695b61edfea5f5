"""Judge a package's system descriptions, alone and against the logs of their runs."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from compliance import official_tools
from compliance.description import DIVISIONS, UnreadableDescription, load, texts
from compliance.finding import Finding, Findings
from compliance.run import RunFacts, as_integer

_MEND = "rewrite the system description with the fields that the submission rules list"


def judge(path: Path, name: str, runs: Sequence[RunFacts], ruleset: str) -> Findings:
    """Yield faults of a description, and its contradictions to the logs of the runs on that system."""
    try:
        content, repeated = load(path)
    except UnreadableDescription as problem:
        yield Finding("system-description", "error", f"{name} {problem}", "a JSON object", _MEND)
        return
    if repeated:
        found = f"{name}: repeated fields: {', '.join(repeated[:5])}"
        yield Finding("system-description", "error", found, "each field once", _MEND)
    for wrong in official_tools.description_problems(content, ruleset):
        found, expected = f"{name}: {wrong}", f"what ruleset {ruleset} asks"
        yield Finding("system-description", "error", found, expected, _MEND)
    fields = texts(content)
    yield from _counts(name, fields)
    yield from _against_logs(name, fields, runs)


def _counts(name: str, fields: dict[str, str]) -> Findings:
    for field, least in (("number_of_nodes", 1), ("accelerators_per_node", 0)):
        value = fields.get(field, "")
        counted = as_integer(value)
        if value and (counted is None or counted < least):
            found, expected = f"{name}: {field} is {value[:80]!r}", f"a whole number of at least {least}, as text"
            yield Finding("system-counts", "warning", found, expected, f"correct {field}")


def _against_logs(name: str, fields: dict[str, str], runs: Sequence[RunFacts]) -> Findings:
    division = fields.get("division")
    if division not in DIVISIONS:
        found = f"{name}: division is {(division or '')[:80]!r}"
        yield Finding("system-division", "error", found, "closed or open, in lower case", "correct division")
    # the logs' division is judged with the logs, as it decides which rules apply
    for key, field in (("submission_org", "submitter"), ("submission_status", "status")):
        described = fields.get(field, "")
        logged = {event.value for run in runs for event in run.all(key) if isinstance(event.value, str)}
        other = sorted(value for value in logged if not _agrees(field, value, described))
        if other:
            values = ", ".join(repr(value[:80]) for value in other[:5])
            found = f"{name}: {field} is {described[:80]!r}, but logs say {key} {values}"
            remedy = f"correct {field}, or run again with the right {key}"
            yield Finding(f"system-{field}", "warning", found, "the same in both", remedy)


def _agrees(field: str, logged: str, described: str) -> bool:
    one, other = _letters(logged), _letters(described)
    if field == "status":  # logs use fewer words, and a preview may be on premises
        return not ("cloud" in one + other and "onprem" in one + other)
    return one in other or other in one or "placeholder" in one  # `names` notes that


def _letters(text: Any) -> str:
    """Return a text without case, hyphens and spaces, which people write differently."""
    return re.sub(r"[\W_]+", "", text.casefold())
