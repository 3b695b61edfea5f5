"""Turn a system file into the system that fine-tuning trains with: `finetune` replaces settings of pre-training.

file -> without what fine-tuning doesn't read -> batch, optimizer and clipping of `finetune` -> the rules of every run
The trainer then reads `data`, `optimizer`, `schedule` and `clip` as in pre-training.
"""

from collections.abc import Iterable

from bertbench.common.errors import ConfigError
from bertbench.common.json_object import JsonObject
from bertbench.common.section import UnsettledError
from bertbench.config.batch_rules import EQUAL_SHARE_RULES
from bertbench.config.checks import RULES
from bertbench.config.load import load_system
from bertbench.config.optimizer import Clip
from bertbench.config.partial import partial
from bertbench.config.reads import DECLARATIONS, Unread
from bertbench.config.rules import broken_rules
from bertbench.config.sections import Compute, Schedule
from bertbench.config.settings import PRE_TRAINING_SETTINGS
from bertbench.config.system import System
from bertbench.config.unread import check_given, reading_of, setting_names, value_of
from bertbench.model.options import unmeasured_precision

COMMAND = "finetune squad"
_SETTINGS_IN_PLACE = {
    "data.global_batch_size": "finetune.global_batch_size",
    "data.gradient_accumulation_steps": "finetune.gradient_accumulation_steps",
    "optimizer.name": "finetune.optimizer",
    "clip.mode": "finetune.clip",
    "clip.max_norm": "finetune.max_norm",
}
"""Settings by the names that rules' messages have, and the names under which a user sets them for fine-tuning."""


def load_finetuning(name_or_path: str, overrides: Iterable[str] = ()) -> System:
    """Return the system that fine-tuning trains with; `with_steps` completes its `schedule` when the steps are known.

    Raises ConfigError as `load_system` does, and for settings that fine-tuning can't honour.
    """
    system = load_system(name_or_path, overrides, _read_by_finetuning)
    check_given(system, COMMAND)
    return _in_place(system)


def left_out(system: System) -> list[str]:
    """Return the settings of pre-training that a system for fine-tuning lacks, by dotted name."""
    names = []
    for setting in PRE_TRAINING_SETTINGS:
        try:
            value_of(system, setting)
        except UnsettledError:
            names.append(setting)
    return names


def check_pre_trains(system: System, command: str) -> None:
    """Raise ConfigError if a system for fine-tuning lacks what a command of pre-training needs."""
    if names := left_out(system):
        raise ConfigError(
            f"{system.argument}: {command} needs {', '.join(names)}, but this file is for fine-tuning; run `bertbench "
            f"finetune squad --system {system.argument}`, or write a file for pre-training that has them"
        )


def with_steps(system: System, steps: int) -> System:
    """Return the system with a schedule of `steps` steps. Raises ConfigError if the warm-up would take longer."""
    options = system.finetune
    warm_up_steps = options.warm_up_steps(steps)
    if warm_up_steps > steps:
        raise ConfigError(
            f"finetune.warmup_steps {warm_up_steps} would end after the run, which takes {steps} steps; set it to at "
            f"most {steps}, or give finetune.warmup_fraction instead"
        )
    schedule = Schedule(max_steps=steps, warmup_steps=warm_up_steps)
    return system.model_copy(update={"schedule": schedule})


def _read_by_finetuning(content: JsonObject) -> JsonObject:
    """Return a file's content without what fine-tuning doesn't read: those settings then have their defaults."""
    declaration = DECLARATIONS[COMMAND]
    unread = {name for name in setting_names() if isinstance(reading_of(declaration, name), Unread)}
    sections = {section.partition(".")[0] for section in PRE_TRAINING_SETTINGS}
    empty: JsonObject = {section: {} for section in (*sections, "finetune")}
    read = empty | _without(content, unread)
    if isinstance(read.get("hardware"), dict):
        read["hardware"]["division"] = "open"  # MLPerf's divisions are for pre-training
    return read


def _without(content: JsonObject, unread: set[str], prefix: str = "") -> JsonObject:
    """Return nested content without the settings of these dotted names; unknown ones stay, to be reported."""
    kept: JsonObject = {}
    for key, value in content.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            section = _without(value, unread, f"{name}.")
            if section or not prefix:
                kept[key] = section
        elif name not in unread and not _is_empty_section(value, name, unread):
            kept[key] = value
    return kept


def _is_empty_section(value: object, name: str, unread: set[str]) -> bool:
    return value is None and any(setting.startswith(f"{name}.") for setting in unread)


def _in_place(system: System) -> System:
    """Put the settings of `finetune` where the trainer reads them. Raises ConfigError if they break a rule."""
    options = system.finetune
    precision = system.precision
    if precision.compute == "fp8":
        raise ConfigError(
            f"{system.argument}: precision.compute fp8 is for pre-training only, because nothing checks it before "
            "fine-tuning; add --set precision.compute=bf16"
        )
    optimizer: dict[str, object] = {
        "name": options.optimizer,
        "learning_rate": options.learning_rate,
        "beta1": options.beta1,
        "beta2": options.beta2,
        "epsilon": options.epsilon,
        "weight_decay": options.weight_decay,
    }
    if system.optimizer.impl == "auto":  # nothing checks kernels before a fine-tuning
        optimizer["impl"] = "torch"
    batch = {
        "global_batch_size": options.global_batch_size,
        "gradient_accumulation_steps": options.gradient_accumulation_steps,
    }
    in_place = system.model_copy(
        update={
            "data": system.data.model_copy(update=batch),
            "optimizer": system.optimizer.model_copy(update=optimizer),
            "schedule": partial(Schedule, {"warmup_steps": 0}),
            "clip": Clip(mode=options.clip, max_norm=options.max_norm),
            "precision": precision.model_copy(update={"compute": unmeasured_precision(precision.compute)}),
            "compute": Compute(compile="none", products="torch"),
        }
    )
    rules = [rule for rule in RULES if rule not in EQUAL_SHARE_RULES]
    if problems := [_for_finetuning(problem) for problem in broken_rules(rules, in_place)]:
        raise ConfigError("\n".join(f"{system.argument}: {problem}" for problem in problems))
    return in_place


def _for_finetuning(problem: str) -> str:
    """Return a rule's message with the settings' names in `finetune`."""
    for name, own_name in _SETTINGS_IN_PLACE.items():
        problem = problem.replace(name, own_name)
    return problem
