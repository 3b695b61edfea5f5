"""Read a system file: base files merged, --set applied, everything validated, errors in a person's words."""

import difflib
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, get_args

from pydantic import ValidationError

from bertbench.common.errors import ConfigError, system_reason
from bertbench.common.paths import SYSTEMS
from bertbench.common.section import Section
from bertbench.config.checks import problems
from bertbench.config.partial import partial, section_of
from bertbench.config.scaling import scaled
from bertbench.config.settings import Settings
from bertbench.config.system import System

_NOT_SYSTEMS = {"schema"}
_FILE_KEYS = ("$schema", "extends", "name")
_BATCHES = ("data.global_batch_size", "data.local_batch")
_OPTION = "--set "
_OF_A_CARD = re.compile(r"nvidia|pcie?|sxm\d?|hbm\d?e?|\d+gb?")  # words of a card's name besides its kind
_ALIKE = 0.7  # of difflib's ratio: its own 0.6 takes `nodes` for `sw_notes`


def system_names() -> list[str]:
    """Names of the systems that come with the project."""
    return sorted(path.stem for path in SYSTEMS.glob("*.json") if path.stem not in _NOT_SYSTEMS)


def gpu_models() -> list[str]:
    """Return the cards whose figures come with the project: `init`, `fit` and `predict` take these."""
    return sorted(path.stem.removeprefix("gpu_").replace("_", "-") for path in (SYSTEMS / "base").glob("gpu_*.json"))


def gpu_card(name: str) -> str | None:
    """Return the card of `gpu_models` that a name means; None if it names another.

    A kind alone, such as h100, means its SXM module, as in DGX and HGX; a card's whole name will do.
    """
    words = re.split(r"[-_ ]+", name.lower())
    form = "pcie" if any(word.startswith("pci") for word in words) else "sxm"
    kinds = [word for word in words if not _OF_A_CARD.fullmatch(word)]
    return f"{kinds[0]}-{form}" if len(kinds) == 1 and f"{kinds[0]}-{form}" in gpu_models() else None


def load_system(name_or_path: str, overrides: Iterable[str] = ()) -> System:
    """Return the validated system of that name, or of a path to a .json file, with `a.b=value` overrides applied.

    Raises ConfigError, which names every problem found, where it is, and what to do.
    """
    path = _find(name_or_path)
    return system_from(path, _read(path), overrides)


def system_from(path: Path, own: dict[str, Any], overrides: Iterable[str] = ()) -> System:
    """Return the system that a file at `path` with the content `own` is; the file need not be there.

    Raises ConfigError as `load_system` does.
    """
    origins: dict[str, str] = {}
    content = _merged(path, own, (), origins)
    wrong = [problem for override in overrides for problem in _override(content, origins, override)]
    content["name"] = path.stem
    try:
        system = System.model_validate_json(json.dumps(content))
    except ValidationError as error:
        wrong += _wrong_settings(path, error, origins)
        wrong += _wrong_together(path, content, origins)
    if wrong:
        raise ConfigError("\n".join(wrong))
    made = scaled(system)
    return made if path.parent == SYSTEMS else made.at_path(str(path))


def whole_file(name_or_path: str) -> str:
    """Return a system file with what it extends merged in: JSON that needs no other file.

    Raises ConfigError as `load_system` does.
    """
    path = _find(name_or_path)
    return json.dumps(_merged(path, _read(path), (), {}), indent=2) + "\n"


def is_path(name_or_path: str) -> bool:
    """Return whether a file is meant, not one of the systems that come with the project."""
    return name_or_path.endswith(".json")


def schema() -> str:
    """Return the JSON schema of system files, as in schema.json: editors complete and check with it."""
    content = System.model_json_schema()
    properties = content["properties"]
    del properties["name"]  # the file's name says it
    content["properties"] = {
        "$schema": {"type": "string", "description": "Where editors find this schema."},
        "extends": {
            "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
            "description": "Files, without .json, that this one is laid over; of several, the later over the earlier. "
            "A name without a file beside this one names a file of the project.",
        },
        **properties,
    }
    content["required"] = []  # a base file may leave anything to those that extend it
    return json.dumps(content, indent=2) + "\n"


def _find(name_or_path: str) -> Path:
    if is_path(name_or_path):
        return Path(name_or_path)
    path = SYSTEMS / f"{name_or_path}.json"
    if name_or_path not in system_names():
        close = difflib.get_close_matches(name_or_path, system_names(), n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise ConfigError(
            f"found no system {name_or_path!r}; {hint}`bertbench systems` lists them, or give a path to a .json file"
        )
    return path


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({system_reason(error)}); give the path of a system file") from error
    except ValueError as error:
        raise ConfigError(f"{path}: is not valid JSON: {error}; correct the file there") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: found {type(content).__name__}, expected one JSON object")
    return content


def _merged(path: Path, content: dict[str, Any], seen: tuple[Path, ...], origins: dict[str, str]) -> dict[str, Any]:
    """Return the file's content over that of the files it extends; sections merge key by key.

    `origins` gets the file that each setting comes from.
    """
    bases = content.get("extends", [])
    merged: dict[str, Any] = {}
    for base in [bases] if isinstance(bases, str) else bases:
        found, above = _base(path, base), (*seen, path.resolve())
        if found.resolve() in above:
            raise ConfigError(f"{found}: extends itself by way of {path.name}; remove one `extends`")
        merged = _over(merged, _merged(found, _read(found), above, origins))
    origins.update((name, str(path)) for name in _names(content))
    return {key: value for key, value in _over(merged, content).items() if key not in _FILE_KEYS}


def _base(path: Path, base: str) -> Path:
    """Return the file that `path` extends as `base`: the one beside it, else the shipped one of that name."""
    beside, shipped = path.parent / f"{base}.json", SYSTEMS / f"{base}.json"
    itself = beside.resolve() == path.resolve()
    if shipped.is_file() and (itself or not beside.exists()):
        return shipped
    if not beside.exists():
        raise ConfigError(
            f"{path}: extends {base!r}: {beside} cannot be read (no such file), and no shipped file has "
            "that name; `bertbench systems` lists the systems among those"
        )
    return beside


def _over(base: dict[str, Any], content: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in content.items():
        both = isinstance(value, dict) and isinstance(base.get(key), dict)
        merged[key] = _over(base[key], value) if both else value
    return merged


def _names(value: Any, prefix: str = "") -> Iterator[str]:
    """Yield the dotted names of all settings in a section."""
    if isinstance(value, dict):
        for key, below in value.items():
            yield from _names(below, f"{prefix}.{key}" if prefix else key)
    else:
        yield prefix


def _override(content: dict[str, Any], origins: dict[str, str], override: str) -> Iterator[str]:
    """Override the content by NAME=VALUE, or yield its problems."""
    option = f"{_OPTION}{override!r}"
    name, equals, text = override.partition("=")
    if not equals or not name:
        yield f"{option}: expected NAME=VALUE, for example schedule.max_steps=100"
        return
    try:
        value = json.loads(text)
    except ValueError:
        value = text  # a bare word is a string
    *sections, key = name.split(".")
    place = content
    for depth, section in enumerate(sections, start=1):
        if section not in place:
            origins[".".join(sections[:depth])] = option
        place = place.setdefault(section, {})
        if not isinstance(place, dict):
            yield f"{option}: {section} is a value, not a section; `bertbench show cpu_demo` prints all names"
            return
    if name in _BATCHES and value is not None:
        for batch in _BATCHES:  # either names the batch: the later one holds
            place.pop(batch.removeprefix("data."), None)
            origins.pop(batch, None)
    place[key] = value
    origins.update((below, option) for below in (name, *_names(value, name)))


def _wrong_settings(path: Path, error: ValidationError, origins: dict[str, str]) -> Iterator[str]:
    """Yield the problems of single settings."""
    for problem in error.errors(include_url=False):
        location, message = problem["loc"], problem["msg"]
        if not location:
            continue  # the settings are right one by one, and don't go together
        where = ".".join(map(str, location))
        if problem["type"] == "extra_forbidden":
            text = f"unknown key; {_known_keys(location)}"
        elif problem["type"] == "missing":
            text = "missing; add it"
        elif problem["type"] == "model_type":
            text = f"found {problem['input']!r}, expected a section; {_meant(location, problem['input'])}"
        else:
            text = f"found {problem['input']!r}; {message[0].lower()}{message[1:]}"
            expected = re.findall("'(.*?)'", problem.get("ctx", {}).get("expected", ""))
            if close := difflib.get_close_matches(str(problem["input"]), expected, 1):
                text += f"; did you mean {close[0]}?"
        yield f"{_origin(location, origins) or path}: {where}: {text}"


def _wrong_together(path: Path, content: dict[str, Any], origins: dict[str, str]) -> Iterator[str]:
    """Yield which settings don't go together, as far as each of them is right."""
    for problem in problems(partial(Settings, content)):
        options = [
            origin
            for name, origin in origins.items()
            if origin.startswith(_OPTION) and any(_overlap(name, setting) for setting in problem.settings)
        ]
        yield f"{', '.join(dict.fromkeys(options)) or path}: {problem.text}"


def _origin(location: tuple[int | str, ...], origins: dict[str, str]) -> str | None:
    """Return the file or option that a setting, or what is around it, comes from."""
    names = (".".join(map(str, location[:end])) for end in range(len(location), 0, -1))
    return next((origins[name] for name in names if name in origins), None)


def _overlap(one: str, other: str) -> bool:
    """Return whether two names are the same setting, or one is the section of the other."""
    return one == other or one.startswith(f"{other}.") or other.startswith(f"{one}.")


def _known_keys(location: tuple[int | str, ...]) -> str:
    """Return what could have been meant instead of an unknown key."""
    section: type[Section] | None = System
    key = str(location[-1])
    for part in location[:-1]:
        assert section is not None, "only sections have unknown keys"
        section = section_of(section.model_fields[str(part)])
    assert section is not None, "only sections have unknown keys"
    known = sorted(field.alias or name for name, field in section.model_fields.items())
    if close := _alike(key, known):
        return f"did you mean {close}?"
    elsewhere: dict[str, str] = {}
    for name in _all_settings(System):
        elsewhere.setdefault(name.rpartition(".")[2], name)  # optimizer.learning_rate before finetune's
    if close := _alike(key, elsewhere):
        return f"did you mean {elsewhere[close]}?"
    return f"expected one of {', '.join(known)}"


def _meant(location: tuple[int | str, ...], value: Any) -> str:
    """Return what could have been meant by a value in the place of a section."""
    section: type[Section] | None = System
    for part in location:
        section = section and section_of(section.model_fields[str(part)])
    assert section is not None, "only sections expect one"
    where, fields = ".".join(map(str, location)), section.model_fields
    choices = {str(one): f"{where}.{name}={one}" for name in fields for one in get_args(fields[name].annotation)}
    if close := _alike(str(value), choices):
        return f"did you mean {choices[close]}?"
    return f"set one of {', '.join(f'{where}.{name}' for name in fields)}"


def _alike(key: str, known: Iterable[str]) -> str | None:
    """Return the name that `key` means: one that has all its words, as number_of_nodes has nodes, or a similar one."""
    words = set(key.split("_"))
    having = [name for name in known if words <= set(name.split("_"))]
    close = having or difflib.get_close_matches(key, known, n=1, cutoff=_ALIKE)
    return min(close, key=len) if close else None


def _all_settings(section: type[Section], prefix: str = "") -> Iterator[str]:
    """Yield the dotted names of all settings."""
    for name, field in section.model_fields.items():
        dotted = f"{prefix}{field.alias or name}"
        below = section_of(field)
        yield dotted
        if below is not None:
            yield from _all_settings(below, f"{dotted}.")
