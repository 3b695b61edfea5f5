"""Find the settings that a command can't honour, by its declaration in config/reads.py.

`check_given` refuses, by name, those that were given by hand: by --set, or by a variable that stands for a setting.
`unread_line` lists those that the system file states, in one line.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from bertbench.common.errors import ConfigError
from bertbench.common.section import Section
from bertbench.config.load import option_of, parsed_override
from bertbench.config.partial import section_of
from bertbench.config.reads import DECLARATIONS, Declaration, ReadAs, Reading, ReadWhere, Unread
from bertbench.config.settings import Settings
from bertbench.config.system import System


def setting_names(kind: type[Section] = Settings, prefix: str = "") -> Iterator[str]:
    """Yield the dotted name of every setting."""
    for name, field in kind.model_fields.items():
        below = section_of(field)
        key = f"{prefix}{field.alias or name}"
        if below is None:
            yield key
        else:
            yield from setting_names(below, f"{key}.")


def reading_of(declaration: Declaration, setting: str) -> Reading:
    """Return how a command reads a setting. Raises KeyError for one that the declaration doesn't name."""
    name = setting
    while name not in declaration and "." in name:
        name = name.rpartition(".")[0]
    return declaration[name if name in declaration else "*"]


def settings_read(command: str) -> Iterator[str]:
    """Yield the settings that `command` reads under some condition at least.

    `launch` and the commands of the laboratory have no declaration of their own: they read what `train` reads.
    """
    declaration = DECLARATIONS.get(command, DECLARATIONS["train"])
    return (setting for setting in setting_names() if not isinstance(reading_of(declaration, setting), Unread))


def check_given(system: System, command: str) -> None:
    """Raise ConfigError for the settings given by hand that `command` can't honour, each by name with the remedy.

    A system for another task is refused as well.
    """
    _check_task(system, command)
    declaration = DECLARATIONS[command]
    problems = []
    for setting in setting_names():
        if setting not in system.given:
            continue
        option, value = system.given[setting], value_of(system, setting)
        match reading_of(declaration, setting):
            case Unread() as reading if not reading.passes(value):
                problems.append(_refusal(option, command, setting, reading))
            case ReadAs(values, because) if value not in values:
                choices = " or ".join(map(str, values))
                problems.append(f"{option}: {command} can't honour it: {because}; use {choices}")
            case ReadWhere(holds, needs) if not holds(system):
                problems.append(f"{option}: {command} reads {setting} only with {needs}; set that too, or leave it out")
    if problems:
        raise ConfigError("\n".join(problems))


def _check_task(system: System, command: str) -> None:
    if command == "config show" or (command == "finetune squad") == (system.task == "squad"):
        return
    if system.task == "squad":
        raise ConfigError(
            f"{system.argument}: {command} is for pre-training, but this system has task squad; run `bertbench "
            f"finetune squad --system {system.argument}`, or name another system"
        )
    raise ConfigError(
        f"{system.argument}: {command} needs a system with task squad, but this one is for pre-training; name "
        "squad_cpu, or a file that extends base/squad (docs/finetuning.md)"
    )


def check_overrides(overrides: Iterable[str], command: str) -> None:
    """Raise ConfigError for those of `overrides`, NAME=VALUE, that `command` doesn't read, whatever else is wrong."""
    problems = []
    for override in overrides:
        name, content = parsed_override(override)
        for setting in setting_names():
            if setting != name and not setting.startswith(f"{name}."):
                continue
            value = _within(content, setting.removeprefix(name).lstrip("."))
            reading = reading_of(DECLARATIONS[command], setting)
            if value is not None and isinstance(reading, Unread) and not reading.passes(value):
                problems.append(_refusal(option_of(override), command, setting, reading))
    if problems:
        raise ConfigError("\n".join(problems))


def _refusal(origin: str, command: str, setting: str, reading: Unread) -> str:
    return f"{origin}: {command} doesn't read {setting}; {reading.remedy}"


def _within(value: Any, names: str) -> Any:
    """Return what a JSON value holds under dotted names; None if it holds nothing there."""
    for name in filter(None, names.split(".")):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def unread_line(system: System, command: str) -> str | None:
    """Return a line that names the sections and settings of the file that `command` doesn't read; None without any.

    A setting that another setting of the file switches off isn't named, because that is the file's own choice.
    """
    declaration = DECLARATIONS[command]
    unread: list[str] = []
    for section, settings in groupby(sorted(system.stated), key=lambda setting: setting.partition(".")[0]):
        stated = list(settings)
        ignored = [setting for setting in stated if _is_unread(declaration, system, setting)]
        if ignored == stated:
            unread.append(section)
        else:
            unread += ignored
    if not unread:
        return None
    return f"{system.name}: {command} doesn't read {', '.join(unread)} of the system file"


def _is_unread(declaration: Declaration, system: System, setting: str) -> bool:
    reading = reading_of(declaration, setting)
    return isinstance(reading, Unread) and not reading.passes(system.stated[setting])


def value_of(system: System, setting: str) -> Any:
    """Return a setting's value; None where its section is left out."""
    value: Any = system
    for name in setting.split("."):
        value = None if value is None else getattr(value, name)
    return value
