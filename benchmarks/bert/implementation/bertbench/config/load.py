"""Read a system file: merge its base files, apply --set, validate everything, and report mistakes in plain words."""

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bertbench.common.close_names import close_names, did_you_mean
from bertbench.common.errors import ConfigError
from bertbench.common.json_object import JsonObject, read_object
from bertbench.common.paths import SYSTEMS
from bertbench.common.section import Section, section_of
from bertbench.common.system_faults import exists
from bertbench.config.closed import CLOSED_RULES
from bertbench.config.given import Overrides, option_of, override_texts, parsed_override
from bertbench.config.layout_rules import BATCH_RULES, LAYOUT_RULES
from bertbench.config.rules import MODEL_AND_STEP_RULES, broken_rules
from bertbench.config.system import System, scaled_to_its_batch

_FILE_KEYS = ("$schema", "extends", "name")
RUN_CONFIG = "config.json"
"""Name of the file in a run's folder that has the run's whole configuration."""
_FROM_THE_QUESTIONS: dict[tuple[str, str], object] = {("data", "path"): "", ("schedule", "max_steps"): 1}
"""Settings without a default that a file with `task` squad may leave out, because its command names the data, which
give the steps; each with a valid value."""
_BATCHES = ("data.global_batch_size", "data.local_batch")
_OF_A_CARD = re.compile(r"nvidia|pcie?|sxm\d?|hbm\d?e?|\d+gb?")  # words in a card's name that don't tell its kind


def system_names() -> list[str]:
    """Return the names of the systems that come with the project."""
    return sorted(path.stem for path in SYSTEMS.glob("*.json") if path.stem != "schema")


def pre_training_names() -> list[str]:
    """Return the names of the project's systems that `train` takes; the others are for fine-tuning."""
    names = []
    for name in system_names():
        path = SYSTEMS / f"{name}.json"
        if _merged(path, _read(path), (), {}).get("task") != "squad":
            names.append(name)
    return names


def gpu_models() -> list[str]:
    """Return the cards whose figures come with the project, which `config init` and `estimate` take."""
    return sorted(path.stem.removeprefix("gpu_").replace("_", "-") for path in (SYSTEMS / "base").glob("gpu_*.json"))


def gpu_card(name: str) -> str | None:
    """Return the card of `gpu_models` that a name means; None if it means none of them.

    A kind alone, such as h100, means its SXM module, as in DGX and HGX machines. A card's full name works too.
    """
    words = re.split(r"[-_ ]+", name.lower())
    form = "pcie" if any(word.startswith("pci") for word in words) else "sxm"
    kinds = [word for word in words if not _OF_A_CARD.fullmatch(word)]
    if len(kinds) != 1:
        return None
    card = f"{kinds[0]}-{form}"
    return card if card in gpu_models() else None


def load_system(name: str | Path, overrides: Overrides = ()) -> System:
    """Load a system: it is validated and frozen, and has every setting and the numbers that follow from them.

    `name` is a system of the project such as "cpu_demo", the path of a .json file, or the path of a run, whose settings
    are loaded. `overrides` are settings by dotted name, {"schedule.max_steps": 100}, or texts as for --set,
    ["schedule.max_steps=100"].

    A file with `task` squad may leave out data.path and schedule.max_steps, because the questions give them; reading
    them then raises UnsettledError.

    Raises ConfigError, which names every problem found, where it is, and what to do.
    """
    path = find_system(str(name))
    return system_from(path, _read(path), override_texts(overrides))


def system_from(path: Path, content: JsonObject, overrides: Iterable[str] = ()) -> System:
    """Return the system of a file at `path` with this content; the file need not exist.

    Raises ConfigError as `load_system` does.
    """
    origins: dict[str, str] = {}
    is_run = path.name == RUN_CONFIG and "name" in content  # a system file may have the same name, but states none
    name = content["name"] if is_run else path.stem
    merged = _merged(path, content, (), origins) | {"name": name}
    overrides = list(overrides)
    overridden, wrong = _overridden(merged, overrides, origins)
    try:
        system = _typed(overridden)
    except ValidationError as error:
        wrong += _wrong_settings(path, error, origins)
    if not wrong:  # rules compare valid settings
        wrong += _wrong_together(path, system, merged, overrides)
    if wrong:
        raise ConfigError("\n".join(wrong))
    options = {option_of(override) for override in overrides}
    by_hand = {setting: origin for setting, origin in origins.items() if origin in options}
    stated: dict[str, Any] = {}  # a run's record states every setting, whether or not anyone chose it
    if not is_run:
        stated = {name: value for name, value in _leaves(merged) if name not in by_hand}
    is_shipped = path.parent == SYSTEMS
    return scaled_to_its_batch(system).from_origins(None if is_shipped else str(path), by_hand, stated)


def problems(system: System) -> Iterator[str]:
    """Yield a message for each way in which settings don't go together."""
    return broken_rules((*BATCH_RULES, *MODEL_AND_STEP_RULES, *LAYOUT_RULES, *CLOSED_RULES), system)


def schema() -> str:
    """Return the JSON schema of system files, as in schema.json: editors complete and check with it."""
    content = System.model_json_schema()
    properties = content["properties"]
    del properties["name"]  # the file's name gives it
    content["properties"] = {
        "$schema": {"type": "string", "description": "Where editors find this schema."},
        "extends": {
            "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
            "description": "Names of base files, without .json, whose settings this file overrides; a later base "
            "overrides an earlier one. Bases are looked up in this file's folder, then among the project's systems.",
        },
        **properties,
    }
    content["required"] = []  # a base file may leave any setting to the files that extend it
    return json.dumps(content, indent=2) + "\n"


def find_system(name_or_path: str) -> Path:
    """Return the file of a system of that name, of a .json file, or of a run. Raises ConfigError for another name."""
    if name_or_path.endswith(".json"):
        return Path(name_or_path)
    path = SYSTEMS / f"{name_or_path}.json"
    if name_or_path not in system_names():
        if (run := Path(name_or_path).with_suffix("") / RUN_CONFIG).exists():
            return run
        raise ConfigError(
            f"found no system {name_or_path!r}; {_system_meant(name_or_path)}`bertbench config list` lists them, or "
            "give a .json file or a run"
        )
    return path


def _system_meant(name: str) -> str:
    """Return the question whether a system of a similar name is meant; empty if there is none."""
    meant = close_names(name, system_names())
    return f"{did_you_mean(meant)} " if meant else ""


def _read(path: Path) -> JsonObject:
    if not exists(path, ConfigError):
        raise ConfigError(f"{path}: found no such file; check the path of the system file")
    return read_object(path, ConfigError, "a system file is a JSON object: correct it (docs/configuration.md)")


def _merged(path: Path, content: JsonObject, seen: tuple[Path, ...], origins: dict[str, str]) -> JsonObject:
    """Return the file's content merged over that of the files it extends; sections merge key by key.

    `origins` gets the file that each setting comes from.
    """
    seen = (*seen, path.resolve())
    merged: JsonObject = {}
    for base in _base_names(path, content):
        extended = _base(path, base)
        if not exists(extended, ConfigError):
            raise ConfigError(
                f"{path}: extends {base!r}, but found no {base}.json in its folder or among the project's systems; "
                f"{_system_meant(base)}`bertbench config list` lists these"
            )
        if extended.resolve() in seen:
            raise ConfigError(f"{extended}: extends itself by way of {path.name}; remove one `extends`")
        merged = _over(merged, _merged(extended, _read(extended), seen, origins))
    origins.update((name, str(path)) for name, _ in _leaves(content))
    return {key: value for key, value in _over(merged, content).items() if key not in _FILE_KEYS}


def _base_names(path: Path, content: JsonObject) -> list[str]:
    """Return the names of the files that `path` extends."""
    stated = content.get("extends", [])
    names = stated if isinstance(stated, list) else [stated]
    if not all(isinstance(name, str) for name in names):
        raise ConfigError(f"{path}: extends: found {stated!r}; expected the name of a system, or a list of names")
    return names


def _base(path: Path, base: str) -> Path:
    """Return the file that `path` extends as `base`: the one in its folder, or else the shipped one of that name."""
    beside, shipped = path.parent / f"{base}.json", SYSTEMS / f"{base}.json"
    is_itself = beside.resolve() == path.resolve()
    if shipped.is_file() and (is_itself or not beside.exists()):
        return shipped
    return beside


def _over(base: JsonObject, content: JsonObject) -> JsonObject:
    merged = dict(base)
    for key, value in content.items():
        are_sections = isinstance(value, dict) and isinstance(base.get(key), dict)
        merged[key] = _over(base[key], value) if are_sections else value
    return merged


def _leaves(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted names and the values of all settings in a section."""
    if isinstance(value, dict):
        for key, below in value.items():
            yield from _leaves(below, f"{prefix}.{key}" if prefix else key)
    else:
        yield prefix, value


def _overridden(merged: JsonObject, overrides: Iterable[str], origins: dict[str, str]) -> tuple[JsonObject, list[str]]:
    """Return the content with the overrides, and what is wrong with those; `origins` gets each setting's origin."""
    content = deepcopy(merged)
    return content, [problem for override in overrides for problem in _override(content, origins, override)]


def _override(content: JsonObject, origins: dict[str, str], override: str) -> Iterator[str]:
    """Override the content by NAME=VALUE, or yield its problems."""
    option = option_of(override)
    name, value = parsed_override(override)
    if not name:
        yield f"{option}: expected NAME=VALUE, for example schedule.max_steps=100"
        return
    if any("\ud800" <= letter <= "\udfff" for letter in override):  # how Python represents bytes that aren't UTF-8
        yield f"{option}: settings are UTF-8, but this path isn't; rename it, or set DATADIR or LOGDIR"
        return
    *sections, key = name.split(".")
    place = content
    for depth, section in enumerate(sections, start=1):
        if section not in place:
            origins[".".join(sections[:depth])] = option
        place = place.setdefault(section, {})
        if not isinstance(place, dict):
            yield f"{option}: {section} is a value, not a section; `bertbench config show cpu_demo` prints all names"
            return
    if name in _BATCHES and value is not None:
        for batch in _BATCHES:  # both set the batch: the later one counts
            place.pop(batch.removeprefix("data."), None)
            origins.pop(batch, None)
    place[key] = value
    origins.update((below, option) for below in (name, *dict(_leaves(value, name))))


def _typed(content: JsonObject) -> System:
    """Return the system with this content, by the types of its settings alone. Raises ValidationError.

    A file for fine-tuning may leave out what the questions give. To be validated, the system has stand-ins there. They
    are deleted afterwards, because nobody gave them: reading one then raises UnsettledError (common/section.py).
    """
    left_out = []
    if content.get("task") == "squad":
        for (section, name), stand_in in _FROM_THE_QUESTIONS.items():
            stated = content.get(section)
            if isinstance(stated, dict) and name not in stated:
                content = {**content, section: {**stated, name: stand_in}}
                left_out.append((section, name))
    system = System.model_validate_json(json.dumps(content))
    for section, name in left_out:
        del getattr(system, section).__dict__[name]  # a frozen section refuses `del section.name`
    return system


def _wrong_settings(path: Path, error: ValidationError, origins: dict[str, str]) -> Iterator[str]:
    """Yield the problems of single settings in plain words, with the closest name or value."""
    for problem in error.errors(include_url=False):
        location, message = problem["loc"], problem["msg"]
        where = ".".join(map(str, location))
        if problem["type"] == "extra_forbidden":
            text = f"unknown key; {_known_keys(location)}"
        elif problem["type"] == "missing":
            text = "missing; add it"
        elif problem["type"] == "model_type":
            names = ", ".join(f"{where}.{name}" for name in _section_at(location).model_fields)
            text = f"found {problem['input']!r}, expected a section; set one of {names}"
        else:
            text = f"found {problem['input']!r}; {message[0].lower()}{message[1:]}"
        yield f"{_origin(location, origins) or path}: {where}: {text}"


def _wrong_together(path: Path, system: System, merged: JsonObject, overrides: list[str]) -> Iterator[str]:
    """Yield which settings don't go together, after the options without which they would, or else the file."""
    found = list(problems(system))
    if not found:
        return
    left_without: dict[str, set[str]] = {}
    for left_out in overrides:
        others, _ = _overridden(merged, [override for override in overrides if override != left_out], {})
        with suppress(ValidationError):
            left_without[option_of(left_out)] = set(problems(_typed(others)))
    for problem in found:
        options = [option for option, left in left_without.items() if problem not in left]
        yield f"{', '.join(options) or path}: {problem}"


def _origin(location: tuple[int | str, ...], origins: dict[str, str]) -> str | None:
    """Return the file or option that a setting, or what is around it, comes from."""
    names = (".".join(map(str, location[:end])) for end in range(len(location), 0, -1))
    return next((origins[name] for name in names if name in origins), None)


def _known_keys(location: tuple[int | str, ...]) -> str:
    """Return what could have been meant instead of an unknown key."""
    section, key = _section_at(location[:-1]), str(location[-1])
    known = sorted(field.alias or name for name, field in section.model_fields.items())
    if meant := close_names(key, known):
        return did_you_mean(meant)
    for name, field in System.model_fields.items():
        below = section_of(field)
        if below is not None and key in below.model_fields:
            return did_you_mean([f"{name}.{key}"])
    return f"expected one of {', '.join(known)}"


def _section_at(location: tuple[int | str, ...]) -> type[Section]:
    section: type[Section] = System
    for part in location:
        below = section_of(section.model_fields[str(part)])
        assert below is not None, "what has keys is a section"
        section = below
    return section
