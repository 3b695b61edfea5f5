"""Find a technique by its name, and read its options: the words of `lab train --technique NAME OPTION=VALUE ...`."""

import json
from collections.abc import Mapping, Sequence
from pkgutil import resolve_name
from typing import Any

from pydantic import ValidationError

from bertbench.common.close_names import close_names, did_you_mean
from bertbench.common.errors import ConfigError
from bertbench.common.json_object import first_problem
from bertbench.training.technique import Technique

TECHNIQUES: Mapping[str, str] = {
    "every_step": "bertbench.training.technique:Technique",
    "int8": "lab.techniques.int8:Int8",
    "topk": "lab.techniques.topk:TopK",
    "powersgd": "lab.techniques.powersgd:PowerSgd",
    "delayed": "lab.techniques.delayed:Delayed",
    "local_sgd": "lab.techniques.local_sgd:LocalSgd",
    "diloco": "lab.techniques.diloco:DiLoCo",
}
"""The class of each technique; a run loads only its own."""


def read_technique(words: Sequence[str]) -> Technique:
    """Return the technique of a name, or of a class MODULE:CLASS, and of options OPTION=VALUE.

    Raises ConfigError for an unknown name or option, and for a value that an option can't have.
    """
    name, *options = words
    option = f"--technique {' '.join(words)}"
    kind = _class_of(name)
    given: dict[str, Any] = {}
    for word in options:
        field, equals, value = word.partition("=")
        if not equals or field not in kind.model_fields:
            names = ", ".join(kind.model_fields) or "none"
            raise ConfigError(f"{option}: found {word!r}, expected OPTION=VALUE; the options of {name} are: {names}")
        given[field] = _value(value)
    try:
        return kind.model_validate_json(json.dumps(given))
    except ValidationError as error:
        raise ConfigError(f"{option}: {first_problem(error)}; choose another value") from error


def _class_of(name: str) -> type[Technique]:
    if name not in TECHNIQUES and ":" not in name:
        meant = close_names(name, TECHNIQUES)
        hint = f"{did_you_mean(meant)} " if meant else ""
        raise ConfigError(
            f"--technique {name}: found no such technique; {hint}choose from {', '.join(TECHNIQUES)}, or name a class "
            "of your own, as MODULE:CLASS"
        )
    try:
        kind = resolve_name(TECHNIQUES.get(name, name))
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"--technique {name}: can't be loaded ({error}); give MODULE:CLASS of a module that Python finds, such as "
            "one in a folder of PYTHONPATH"
        ) from error
    if not (isinstance(kind, type) and issubclass(kind, Technique)):
        raise ConfigError(f"--technique {name}: is no Technique; derive it from bertbench.training.technique.Technique")
    return kind


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
