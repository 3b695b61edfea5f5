"""Read system descriptions: MLPerf's JSON files with 33 fields about the machine of a result.

Published ones also contain objects and lists, mostly in other_software_stack. We read every value as text.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from compliance.read.record import DEEPEST_RECORD, decoded_json, depth_of
from compliance.read.source import CannotJudge, found_at, read_plain

_LARGEST = 1 << 20
_MOST_IN_ALL = 10**9  # accelerators; a number with thousands of digits doesn't fit into a float
DIVISIONS = ("closed", "open")


class UnreadableDescription(Exception):  # noqa: N818 - names the file
    """A system description that isn't a JSON object; the message gives the reason."""


def texts(content: dict[str, Any]) -> dict[str, str]:
    """Return the fields of a description's JSON object as text."""
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in content.items()}


def load(path: Path) -> tuple[dict[str, Any], Sequence[str]]:
    """Return a description's JSON object and the fields that it gives more than once. Raises UnreadableDescription."""
    try:
        text = read_plain(path, _LARGEST).decode()
        if depth_of(text) > DEEPEST_RECORD:
            raise UnreadableDescription(f"is nested more than {DEEPEST_RECORD} levels deep")
        content, repeated = decoded_json(text)
    except CannotJudge as problem:
        raise UnreadableDescription(f"can't be read: {found_at(path, problem)}") from problem
    except (ValueError, RecursionError) as error:
        raise UnreadableDescription(f"is not a JSON file ({error})") from error
    if not isinstance(content, dict):
        raise UnreadableDescription(f"contains {type(content).__name__}, not an object")
    return content, repeated


def fields_of_log(log: Path) -> dict[str, str]:
    """Return the fields of the description of a log's system; an empty dict if there is no readable one.

    Runs of bertbench write result_0/system.json. In a package, the description of
    <org>/results/<system>/<benchmark>/result_0.txt is <org>/systems/<system>.json.
    """
    return fields_of_file(log.with_suffix("") / "system.json") or fields_of_result(log.absolute().parent)


def fields_of_result(folder: Path) -> dict[str, str]:
    """Return the description's fields for <org>/results/<system>/<benchmark>; an empty dict if it can't be read."""
    system = folder.absolute().parent
    return fields_of_file(system.parent.parent / "systems" / f"{system.name}.json")


def fields_of_file(path: Path) -> dict[str, str]:
    """Return the fields of a description; an empty dict if it can't be read."""
    try:
        content, _ = load(path)
    except UnreadableDescription:
        return {}  # `package.system` reports what is wrong with it
    return texts(content)


def count_in_all_nodes(fields: dict[str, str], each: str = "accelerators_per_node") -> int | None:
    """Return the number in all nodes together, or None if one of the counts is missing or the product is absurd."""
    try:
        count = int(fields["number_of_nodes"]) * int(fields[each])
    except (KeyError, ValueError):
        return None
    return count if count < _MOST_IN_ALL else None
