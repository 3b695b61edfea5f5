"""Refuse the settings that a user gives by hand, and that a command can't honour.

Settings are given by --set, by an option such as --weights, or by an exported variable. A command can't honour a
setting for one of three reasons. The first two it declares in its `Reads` (common/reads.py), the third is a table here:

- `Unread`: the command never reads the setting.
- `Choice`: it can do only some of the setting's values.
- `Needs`: another setting of the system switches this one off, such as clip.mode none for clip.max_norm.

Each may accept values that say what happens anyway. `check_given` refuses all others, each by name. What only the
system file states isn't refused: `unread_line` names it, in one line.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Self

from bertbench.balance.plan import STRATIFIED
from bertbench.common.errors import ConfigError
from bertbench.common.reads import Choice, Reads, Unread
from bertbench.config.system import System, setting_names
from bertbench.model.options import LEAST_WIDTH

Overrides = Mapping[str, Any] | Iterable[str]
"""Settings by dotted name, such as {"schedule.max_steps": 100}, or texts as for --set: "schedule.max_steps=100"."""


class Override(str):
    """An override, NAME=VALUE, that doesn't come from --set: errors name its `origin`, an environment variable."""

    origin: str

    def __new__(cls, text: str, origin: str) -> Self:
        """Return the override; `origin` is as a user would type it."""
        override = super().__new__(cls, text)
        override.origin = origin
        return override


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


def override_texts(overrides: Overrides) -> list[str]:
    """Return overrides as texts for --set. Raises ConfigError for a value that JSON doesn't have."""
    if isinstance(overrides, str):
        raise ConfigError(f"overrides: found the text {overrides!r}, expected a list of texts; write it in brackets")
    if not isinstance(overrides, Mapping):
        return list(overrides)
    texts = []
    for setting, value in overrides.items():
        try:
            content = json.dumps(str(value) if isinstance(value, Path) else value)
        except TypeError as error:
            raise ConfigError(
                f"overrides: {setting} is a {type(value).__name__}; expected a value that JSON has: a number, a text, "
                "true, null, a list or a dictionary"
            ) from error
        texts.append(f"{setting}={content}")
    return texts


@dataclass(frozen=True)
class Needs:
    """The condition on other settings under which a setting has an effect."""

    holds: Callable[[System], bool]
    words: str
    """The condition, for people."""
    accepted: tuple[object, ...] = ()
    """The setting's values that say what a run does without the condition."""


def _only_with(setting: str, *values: object) -> Needs:
    """Return the condition that another setting has one of these values."""
    *first, last = map(str, values)
    choices = f"{', '.join(first)} or {last}" if first else last
    return Needs(lambda system: value_of(system, setting) in values, f"{setting} {choices}")


def _multiplies_by_onednn(system: System) -> bool:
    whole_on_cpu = system.launch.device == "cpu" and not system.parallel.splits
    return whole_on_cpu and system.model.hidden_size >= LEAST_WIDTH


def _clips_a_rank(system: System) -> bool:
    return system.clip.mode in ("before", "bucket")


_RANDOM_WEIGHTS = Needs(lambda system: system.model.checkpoint is None, "no model.checkpoint")
_WARM_UP = "schedule.warmup_steps above 0"
_WHOLE_MODELS = Needs(
    lambda system: not system.parallel.splits, "whole models: a split model's gradients have no buckets"
)

ONLY_WITH: dict[str, Needs] = {
    "model.initializer_range": _RANDOM_WEIGHTS,
    "model.initial_weights": _RANDOM_WEIGHTS,
    "data.equal_counts": _only_with("data.balance", "planned", "planned_local"),
    "data.strata_edges": _only_with("data.balance", *STRATIFIED),
    "data.strata_quotas": _only_with("data.balance", *STRATIFIED),
    "optimizer.muon": _only_with("optimizer.name", "muon"),
    "schedule.start_warmup_step": Needs(lambda system: system.schedule.warmup_steps > 0, _WARM_UP, accepted=(0,)),
    "schedule.decay_from": Needs(lambda system: system.schedule.warmup_steps > 0, _WARM_UP, accepted=("step_0",)),
    "clip.max_norm": _only_with("clip.mode", "after", "before", "bucket"),
    "clip.divisor": _only_with("clip.mode", "bucket"),
    "clip.parts": Needs(
        lambda system: _clips_a_rank(system) and system.data.gradient_accumulation_steps > 1,
        "clip.mode before or bucket and data.gradient_accumulation_steps above 1",
    ),
    "communication.buckets": _WHOLE_MODELS,
    "communication.bucket_mb": _WHOLE_MODELS,
    "precision.initial_loss_scale": Needs(
        lambda system: system.scales_loss,
        "gradients in fp16: precision.compute or communication.compression fp16",
    ),
    "compute.products": Needs(
        _multiplies_by_onednn,
        f"whole models on CPUs with model.hidden_size of at least {LEAST_WIDTH}",
        accepted=("torch",),
    ),
    "squad.warmup_fraction": _only_with("schedule.warmup_steps", 0),
    "parallel.schedule": Needs(lambda system: system.parallel.pipeline > 1, "parallel.pipeline above 1"),
}
"""The settings, and sections, that have an effect on training only with certain values of others."""


def value_of(system: System, setting: str) -> Any:
    """Return a setting's value; None where its section is left out."""
    value: Any = system
    for name in setting.split("."):
        value = None if value is None else getattr(value, name)
    return value


def needs_of(setting: str) -> Needs | None:
    """Return the condition of a setting, or of its section; None if it always has an effect."""
    return ONLY_WITH.get(setting) or ONLY_WITH.get(setting.rpartition(".")[0])


def check_given(system: System, reads: Reads) -> None:
    """Raise ConfigError for the settings given by hand that a command can't honour, each by name with the remedy.

    A system for another task is refused as well.
    """
    check_task(system, reads)
    problems = []
    for setting in setting_names():
        if setting not in system.given:
            continue
        why = _why_refused(system, setting, reads)
        if why is not None:
            problems.append(f"{system.given[setting]}: {reads.command} {why}")
    if problems:
        raise ConfigError("\n".join(problems))


def _why_refused(system: System, setting: str, reads: Reads) -> str | None:
    """Return why a command can't honour a setting of this system; None if it can."""
    value = value_of(system, setting)
    match reads.limit_on(setting):
        case Unread() as unread if unread.accepts(value):
            return None
        case Unread() as unread:
            return _not_read(setting, unread)
        case Choice(values, because) if value not in values:
            choices = " or ".join(map(str, values))
            return f"can't honour it: {because}; use {choices}"
    needs = needs_of(setting)
    if needs is None or not reads.trains:
        return None
    if needs.holds(system) or value in needs.accepted:
        return None
    return f"reads {setting} only with {needs.words}; set that too, or leave it out"


def _not_read(setting: str, unread: Unread) -> str:
    return f"doesn't read {setting}; {unread.remedy}"


def check_task(system: System, reads: Reads) -> None:
    """Raise ConfigError if a command can't take a system because of its task."""
    if reads.task in (None, system.task):
        return
    if system.task == "squad":
        raise ConfigError(
            f"{system.argument}: {reads.command} is for pre-training, but this system has task squad; run `bertbench "
            f"finetune squad --system {system.argument}`, or name another system"
        )
    raise ConfigError(
        f"{system.argument}: {reads.command} needs a system with task squad, but this one is for pre-training; name "
        "squad_cpu, or a file that extends base/squad (docs/finetuning.md)"
    )


def check_overrides(overrides: Iterable[str], reads: Reads) -> None:
    """Raise ConfigError for those of `overrides`, NAME=VALUE, that a command doesn't read, whatever else is wrong."""
    problems = []
    for override in overrides:
        name, content = parsed_override(override)
        for setting in setting_names():
            if setting != name and not setting.startswith(f"{name}."):
                continue
            value = _within(content, setting.removeprefix(name).lstrip("."))
            unread = reads.limit_on(setting)
            if value is not None and isinstance(unread, Unread) and not unread.accepts(value):
                problems.append(f"{option_of(override)}: {reads.command} {_not_read(setting, unread)}")
    if problems:
        raise ConfigError("\n".join(problems))


def _within(value: Any, names: str) -> Any:
    """Return what a JSON value holds under dotted names; None if it holds nothing there."""
    for name in filter(None, names.split(".")):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def unread_line(system: System, reads: Reads) -> str | None:
    """Return a line that names the sections and settings of the file that a command doesn't read; None without any.

    A setting that another setting of the file switches off isn't named, because that is the file's own choice.
    """
    unread: list[str] = []
    for section, settings in groupby(sorted(system.stated), key=lambda setting: setting.partition(".")[0]):
        stated = list(settings)
        ignored = [setting for setting in stated if _is_unread(system, setting, reads)]
        if ignored == stated:
            unread.append(section)
        else:
            unread += ignored
    if not unread:
        return None
    return f"{system.name}: {reads.command} doesn't read {', '.join(unread)} of the system file"


def _is_unread(system: System, setting: str, reads: Reads) -> bool:
    unread = reads.limit_on(setting)
    return isinstance(unread, Unread) and not unread.accepts(system.stated[setting])
