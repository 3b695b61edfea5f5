"""Explain in plain words what is wrong in a system file, and suggest the closest name or value."""

from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from bertbench.common.close_names import close_names, did_you_mean
from bertbench.common.json_object import JsonObject
from bertbench.common.section import Section
from bertbench.config.checks import problems
from bertbench.config.partial import partial, section_of
from bertbench.config.settings import PRE_TRAINING_SETTINGS, Settings
from bertbench.config.system import System


def wrong_settings(path: Path, error: ValidationError, origins: dict[str, str], content: JsonObject) -> Iterator[str]:
    """Yield the problems of single settings of a file's content."""
    may_be_missing = PRE_TRAINING_SETTINGS if content.get("task") == "squad" else ()
    for problem in error.errors(include_url=False):
        location, message = problem["loc"], problem["msg"]
        if not location:
            continue  # every setting is valid, but some don't go together: see wrong_together
        where = ".".join(map(str, location))
        if problem["type"] == "missing" and where in may_be_missing:
            continue
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


def wrong_together(path: Path, content: JsonObject, without: dict[str, JsonObject]) -> Iterator[str]:
    """Yield which settings don't go together, among those that are valid by themselves.

    `without` has the content without each option: a problem that disappears there is due to the option.
    """
    left_without = {option: set(problems(partial(Settings, other))) for option, other in without.items()}
    for problem in problems(partial(Settings, content)):
        options = [option for option, remaining in left_without.items() if problem not in remaining]
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
