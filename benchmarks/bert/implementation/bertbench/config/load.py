"""Read a system file: base files merged, --set applied, everything validated, errors in a person's words."""

import difflib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from bertbench.common.errors import ConfigError, system_reason
from bertbench.common.paths import SYSTEMS
from bertbench.config.scaling import scaled
from bertbench.config.system import System

_NOT_SYSTEMS = {"schema"}
_FILE_KEYS = ("$schema", "extends", "name")


def system_names() -> list[str]:
    """Names of the systems that come with the project."""
    return sorted(path.stem for path in SYSTEMS.glob("*.json") if path.stem not in _NOT_SYSTEMS)


def load_system(name_or_path: str, overrides: Iterable[str] = ()) -> System:
    """The validated system of that name, or of a path to a .json file, with `a.b=value` overrides applied.

    Raises ConfigError, which names every problem found, where it is, and what to do.
    """
    path = _find(name_or_path)
    content = _merged(path, ())
    for override in overrides:
        _override(content, override)
    content["name"] = path.stem
    try:
        return scaled(System.model_validate_json(json.dumps(content)))
    except ValidationError as error:
        raise ConfigError(_explain(path, error)) from error


def schema() -> str:
    """The JSON schema of system files, as schema.json holds it: editors complete and check with it."""
    content = System.model_json_schema()
    properties = content["properties"]
    del properties["name"]  # the file's name says it
    content["properties"] = {
        "$schema": {"type": "string", "description": "Where editors find this schema."},
        "extends": {
            "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
            "description": "Files, without .json, that this one is laid over; of several, the later over the earlier.",
        },
        **properties,
    }
    content["required"] = []  # a base file may leave anything to those that extend it
    return json.dumps(content, indent=2) + "\n"


def _find(name_or_path: str) -> Path:
    if name_or_path.endswith(".json"):
        return Path(name_or_path)
    path = SYSTEMS / f"{name_or_path}.json"
    if name_or_path not in system_names():
        close = difflib.get_close_matches(name_or_path, system_names(), n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise ConfigError(
            f"found no system {name_or_path!r}; {hint}`bertbench systems` lists them, or give a path to a .json file"
        )
    return path


def _merged(path: Path, seen: tuple[Path, ...]) -> dict[str, Any]:
    """The file's content over that of the files it extends; sections merge key by key."""
    if path.resolve() in seen:
        raise ConfigError(f"{path}: extends itself by way of {seen[-1].name}; remove one `extends`")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({system_reason(error)}); give the path of a system file") from error
    except ValueError as error:
        raise ConfigError(f"{path}: is not valid JSON: {error}; correct the file there") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: found {type(content).__name__}, expected one JSON object")
    bases = content.get("extends", [])
    merged: dict[str, Any] = {}
    for base in [bases] if isinstance(bases, str) else bases:
        merged = _over(merged, _merged(path.parent / f"{base}.json", (*seen, path.resolve())))
    return {key: value for key, value in _over(merged, content).items() if key not in _FILE_KEYS}


def _over(base: dict[str, Any], content: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in content.items():
        both = isinstance(value, dict) and isinstance(base.get(key), dict)
        merged[key] = _over(base[key], value) if both else value
    return merged


def _override(content: dict[str, Any], override: str) -> None:
    name, equals, text = override.partition("=")
    if not equals or not name:
        raise ConfigError(f"--set {override!r}: expected NAME=VALUE, for example schedule.max_steps=100")
    try:
        value = json.loads(text)
    except ValueError:
        value = text  # a bare word is a string
    *sections, key = name.split(".")
    place = content
    for section in sections:
        place = place.setdefault(section, {})
        if not isinstance(place, dict):
            raise ConfigError(
                f"--set {override!r}: {section} is a value, not a section; `bertbench show` prints all names"
            )
    if name in ("data.global_batch_size", "data.local_batch") and value is not None:
        place.pop("local_batch", None)  # either names the batch: the later one holds
        place.pop("global_batch_size", None)
    place[key] = value


def _explain(path: Path, error: ValidationError) -> str:
    lines = []
    for problem in error.errors(include_url=False):
        where = ".".join(str(part) for part in problem["loc"])
        kind, message = problem["type"], problem["msg"]
        if kind == "extra_forbidden":
            lines.append(f"{where}: unknown key; {_known_keys(problem['loc'])}")
        elif kind == "missing":
            lines.append(f"{where}: missing; add it")
        elif kind == "value_error":
            lines.append(message.removeprefix("Value error, "))
        else:
            lines.append(f"{where}: found {problem['input']!r}; {message[0].lower()}{message[1:]}")
    return "\n".join(f"{path}: {line}" for line in lines)


def _known_keys(location: tuple[int | str, ...]) -> str:
    """What could have been meant instead of an unknown key."""
    section: type[BaseModel] = System
    for part in location[:-1]:
        annotation = section.model_fields[str(part)].annotation
        candidates = [annotation, *getattr(annotation, "__args__", ())]
        section = next(kind for kind in candidates if isinstance(kind, type) and issubclass(kind, BaseModel))
    known = sorted(field.alias or name for name, field in section.model_fields.items())
    close = difflib.get_close_matches(str(location[-1]), known, n=1)
    return f"did you mean {close[0]}?" if close else f"expected one of {', '.join(known)}"
