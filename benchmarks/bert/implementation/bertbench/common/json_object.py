"""Read JSON files, as objects or as a given type, and list the differences between objects."""

import codecs
from collections.abc import Mapping
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from bertbench.common.compressed import unpacking
from bertbench.common.errors import BertbenchError
from bertbench.common.system_faults import unreadable

JsonObject = dict[str, Any]
_SHOWN = 80
"""Letters of a value that a difference shows."""


def read_object(path: Path, error: type[BertbenchError], remedy: str) -> JsonObject:
    """Return the JSON object in `path`; if there is none, raise `error` with a message that ends with `remedy`."""
    content: JsonObject = read_as(path, JsonObject, error, remedy)
    return content


def read_as(path: Path, kind: Any, error: type[BertbenchError], remedy: str) -> Any:
    """Return the JSON in `path` as a dataclass or another type that pydantic checks; raise `error` if it isn't one."""
    try:
        content = path.read_bytes().removeprefix(codecs.BOM_UTF8)  # which some editors write
        return _adapter(kind).validate_json(content, strict=True)
    except OSError as problem:
        raise error(unreadable(path, problem, remedy)) from problem
    except ValidationError as problem:
        fault = f"{first_problem(problem)}; {remedy}"
        raise error(f"{path}: {unpacking(path) or fault}") from problem


def differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return the differences between two nested objects, one line each; long values are shortened."""
    return list(differences_by_name(then, now).values())


def differences_by_name(then: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, str]:
    """Return the lines of `differences` by the dotted name of what differs."""
    before = _flat(then)
    after = _flat(now)
    return {
        name: _difference(name, before.get(name), after.get(name))
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    }


def _difference(name: str, before: Any, after: Any) -> str:
    """Return the line of a difference; of lists, it names the first entry that differs."""
    if isinstance(before, list) and isinstance(after, list):
        return _list_difference(name, before, after)
    return f"{name}: was {repr(before)[:_SHOWN]}, is {repr(after)[:_SHOWN]}"


def _list_difference(name: str, before: list[Any], after: list[Any]) -> str:
    if sorted(map(repr, before)) == sorted(map(repr, after)):
        return f"{name}: was the same {len(before)} entries in another order"
    alike = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(before, after, strict=False))))
    counts = "" if len(before) == len(after) else f"had {len(before)} entries, has {len(after)}; "
    old, new = (repr(entries[alike])[:_SHOWN] if alike < len(entries) else "nothing" for entries in (before, after))
    return f"{name}: {counts}entry {alike + 1} was {old}, is {new}"


def _flat(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in content.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    """Return pydantic's check of a type. Building one takes 10 ms, and opening a dataset needs it seven times."""
    return TypeAdapter(kind)


def first_problem(error: ValidationError) -> str:
    """Return the place and kind of the first problem: `data[0].paragraphs[2].context: field required`."""
    problem, *others = error.errors(include_url=False)
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in problem["loc"]]
    place = "".join(parts).removeprefix(".")
    message = problem["msg"]
    text = f"{message[0].lower()}{message[1:]}"
    if place:
        text = f"{place}: {text}"
    if problem["type"] not in ("missing", "json_invalid"):
        text += f", found {str(problem['input'])[:60]!r}"
    if others:
        text += f" (and {len(others)} more problems)"
    return text
