"""System descriptions: MLPerf's JSON of 33 fields that says what machine a result was measured on."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from compliance import official_tools
from compliance.judge import Finding
from compliance.log import Event

_LARGEST = 1 << 20
_MEND = "write the system description anew, with the fields that the submission rules list"


class UnreadableDescription(Exception):  # noqa: N818 - what the file is
    """A system description that is no JSON object of texts; the message says why."""


def read(path: Path) -> dict[str, str]:
    """The fields of a description. Raises UnreadableDescription."""
    if not path.is_file():
        raise UnreadableDescription("is no file")
    try:
        if path.stat().st_size > _LARGEST:
            raise UnreadableDescription(f"holds {path.stat().st_size:,} bytes")
        content: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UnreadableDescription(f"is no JSON file ({error})") from error
    if not isinstance(content, dict):
        raise UnreadableDescription(f"holds {type(content).__name__}, no object")
    odd = [name for name, value in content.items() if not isinstance(value, str)]
    if odd:
        raise UnreadableDescription(f"has values that are no text: {', '.join(odd[:5])}")
    return content


def beside(log: Path) -> Path | None:
    """The description of the system that a log was measured on.

    In a package it is <org>/systems/<system>.json for <org>/results/<system>/<benchmark>/result_0.txt; runs of
    bertbench leave result_0/system.json.
    """
    log = log.absolute()
    candidates = [log.with_suffix("") / "system.json"]
    if len(log.parents) > 3:
        candidates.append(log.parents[3] / "systems" / f"{log.parents[1].name}.json")
    return next((path for path in candidates if path.is_file()), None)


def accelerators(fields: dict[str, str]) -> int | None:
    """Accelerators of the whole system, None where the description has no two whole numbers."""
    try:
        return int(fields["number_of_nodes"]) * int(fields["accelerators_per_node"])
    except (KeyError, ValueError):
        return None


def judge(path: Path, name: str, runs: Sequence[Sequence[Event]], ruleset: str) -> Iterator[Finding]:
    """What is wrong in a description, and where it says other than the logs of the runs on that system."""
    try:
        fields = read(path)
    except UnreadableDescription as problem:
        yield Finding("system-description", "error", None, f"{name} {problem}", "a JSON object of texts", _MEND)
        return
    for found in official_tools.description_problems(path, ruleset):
        yield Finding("system-description", "error", None, f"{name}: {found}", f"what ruleset {ruleset} asks", _MEND)
    yield from _counts(name, fields)
    yield from _against_logs(name, fields, runs)


def _counts(name: str, fields: dict[str, str]) -> Iterator[Finding]:
    for field, least in (("number_of_nodes", 1), ("accelerators_per_node", 0)):
        value = fields.get(field, "")
        if value and not (value.isascii() and value.isdigit() and int(value) >= least):
            found, expected = f"{name}: {field} is {value!r}", f"a whole number of at least {least}, as text"
            yield Finding("system-counts", "warning", None, found, expected, f"correct {field}")


def _against_logs(name: str, fields: dict[str, str], runs: Sequence[Sequence[Event]]) -> Iterator[Finding]:
    division = fields.get("division")
    if division not in ("closed", "open"):
        found = f"{name}: division is {division!r}"
        yield Finding("system-division", "error", None, found, "closed or open, in lower case", "correct division")
    # the logs' division is judged with them: it decides by which rules
    for key, field in (("submission_org", "submitter"), ("submission_status", "status")):
        described = fields.get(field, "")
        logged = {event.value for run in runs for event in run if event.key == key and isinstance(event.value, str)}
        other = sorted(value for value in logged if not _agrees(field, value, described))
        if other:
            found = f"{name}: {field} is {described!r}, but logs say {key} {', '.join(map(repr, other))}"
            remedy = f"correct {field}, or run again with the right {key}"
            yield Finding(f"system-{field}", "warning", None, found, "the same in both", remedy)


def _agrees(field: str, logged: str, described: str) -> bool:
    if field == "status":  # the logs' vocabulary is shorter: onprem is "Available on-premise"
        return logged.replace("-", "").lower() in described.replace("-", "").lower()
    return logged == described
