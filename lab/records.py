"""Write the records in results/ as JSON with a line for each row, so that a diff shows which rows changed."""

import json
from dataclasses import asdict
from typing import Any


def record_text(content: Any) -> str:
    """Return a record as JSON with a last line break.

    The record's keys have a line each, and so have the keys of a dictionary that holds rows. Rows are the items of a
    list of dictionaries or lists. Everything else stays on the line of its key.
    """
    plain = json.loads(json.dumps(content, default=asdict))
    members = [f"{json.dumps(key)}: {_value_text(value)}" for key, value in plain.items()]
    return _block("{", members, "}") + "\n"


def _value_text(value: Any) -> str:
    if _has_rows(value):
        return _block("[", [json.dumps(row) for row in value], "]")
    if isinstance(value, dict) and any(_has_rows(member) for member in value.values()):
        return _block("{", [f"{json.dumps(key)}: {_value_text(member)}" for key, member in value.items()], "}")
    return json.dumps(value)


def _has_rows(value: Any) -> bool:
    return isinstance(value, list) and any(isinstance(item, dict | list) for item in value)


def _block(opening: str, lines: list[str], closing: str) -> str:
    return "\n".join([opening, ",\n".join(lines), closing])
