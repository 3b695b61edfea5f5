"""Read a system file: merge its base files, apply --set, validate everything, and report mistakes in plain words."""

import json
import re
from collections.abc import Iterable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, Self

from pydantic import ValidationError

from bertbench.common.close_names import close_names, did_you_mean
from bertbench.common.errors import ConfigError
from bertbench.common.json_object import JsonObject, read_object
from bertbench.common.paths import SYSTEMS
from bertbench.common.system_faults import exists
from bertbench.config.partial import partial
from bertbench.config.system import System, scaled_to_its_batch

_FILE_KEYS = ("$schema", "extends", "name")
RUN_CONFIG = "config.json"
"""Name of the file in a run's folder that has the run's whole configuration."""
_BATCHES = ("data.global_batch_size", "data.local_batch")
_OF_A_CARD = re.compile(r"nvidia|pcie?|sxm\d?|hbm\d?e?|\d+gb?")  # words in a card's name that don't tell its kind


class Override(str):
    """An override, NAME=VALUE, that doesn't come from --set: errors name its `origin`, an environment variable."""

    origin: str

    def __new__(cls, text: str, origin: str) -> Self:
        """Return the override; `origin` is as a user would type it."""
        override = super().__new__(cls, text)
        override.origin = origin
        return override


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


def load_system(name_or_path: str, overrides: Iterable[str] = ()) -> System:
    """Return the validated system of that name, of a .json file, or of a run, with `a.b=value` overrides applied.

    A file with `task` squad may leave out PRE_TRAINING_SETTINGS; reading one of those raises UnsettledError.

    Raises ConfigError, which names every problem found, where it is, and what to do.
    """
    path = _find(name_or_path)
    return system_from(path, _read(path), overrides)


def system_from(path: Path, content: JsonObject, overrides: Iterable[str] = ()) -> System:
    """Return the system of a file at `path` with this content; the file need not exist.

    Raises ConfigError as `load_system` does.
    """
    origins: dict[str, str] = {}
    is_run = path.name == RUN_CONFIG
    name = content["name"] if is_run else path.stem
    merged = _merged(path, content, (), origins) | {"name": name}
    overrides = list(overrides)
    overridden, wrong = _overridden(merged, overrides, origins)
    try:
        system = System.model_validate_json(json.dumps(overridden))
    except ValidationError as error:
        from bertbench.config.mistakes import wrong_settings, wrong_together  # noqa: PLC0415 - a valid file needs none

        wrong += wrong_settings(path, error, origins, overridden)
        without: dict[str, JsonObject] = {}
        for left_out in overrides:
            others = [override for override in overrides if override != left_out]
            without[option_of(left_out)], _ = _overridden(merged, others, {})
        wrong += wrong_together(path, overridden, without)
        system = partial(System, overridden)  # used if nothing is wrong but left-out settings of pre-training
    if wrong:
        raise ConfigError("\n".join(wrong))
    options = {option_of(override) for override in overrides}
    by_hand = {setting: origin for setting, origin in origins.items() if origin in options}
    stated: dict[str, Any] = {}  # a run's record states every setting, whether or not anyone chose it
    if not is_run:
        stated = {name: value for name, value in _leaves(merged) if name not in by_hand}
    is_shipped = path.parent == SYSTEMS
    return scaled_to_its_batch(system).from_origins(None if is_shipped else str(path), by_hand, stated)


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


def _find(name_or_path: str) -> Path:
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


def option_of(override: str) -> str:
    """Return where an override comes from, as a user would type it: --set, or an environment variable."""
    return override.origin if isinstance(override, Override) else f"--set {override!r}"


def parsed_override(override: str) -> tuple[str, Any]:
    """Return the name and the value of NAME=VALUE; the name is empty if there is no `=`. A bare word is a string."""
    name, equals, text = override.partition("=")
    if not equals:
        return "", None
    try:
        return name, json.loads(text)
    except ValueError:
        return name, text


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
