"""Turn exported variables such as BATCHSIZE, LR and DGXNNODES into overrides of a system's settings.

A variable whose value the system has anyway doesn't become an override: a configuration file exports all variables, but
a smoke run, for example, doesn't read all settings. The value of a setting in a run may follow from other settings, so
it is always that of a loaded system that is compared.
"""

import argparse
from collections.abc import Collection
from contextlib import suppress
from operator import attrgetter
from typing import Any

from bertbench.common.errors import ConfigError
from bertbench.config import System, load_system
from bertbench.config.load import Override, parsed_override
from bertbench.launch.variables import (
    BATCH_SETTINGS,
    HYPER_PARAMETERS,
    MUST_AGREE,
    SAMPLES_OF_A_ROW,
    SETTINGS,
    Exported,
    ExportedVariables,
    Variables,
    VariableSetting,
)


class ExportedSettings:
    """The exported variables that stand for settings of the system that a command line names."""

    def __init__(
        self,
        arguments: argparse.Namespace,
        exported: ExportedVariables,
        variables: Variables,
        set_by_arguments: Collection[str],
    ) -> None:
        """Take the command's arguments; `set_by_arguments` are the settings that its options change."""
        self._arguments = arguments
        self._exported = exported
        self._variables = variables
        self._set_by_arguments = set_by_arguments
        self._overrides: dict[str, Override] = {}
        """The overrides by the variables that give them."""
        self._meanings: dict[str, str] = {}
        """What the user should know about an override, by its variable."""
        self._agreeing: list[Exported] = []
        """Variables with the values that the system has."""

    def read(self, counts_packed_rows: bool) -> None:
        """Read the variables of SETTINGS as overrides."""
        for name, setting in SETTINGS.items():
            exported = self._exported.get(name)
            if exported is not None:
                self._setting(exported, setting, counts_packed_rows)

    def _setting(self, exported: Exported, setting: VariableSetting, counts_packed_rows: bool) -> None:
        value = self._exported.read(exported, setting.read)
        if value is None:
            return
        same_number = BATCH_SETTINGS if setting.name in BATCH_SETTINGS else (setting.name,)
        beaten_by = set(same_number).intersection(self._set_by_arguments)
        if beaten_by:
            self._variables.pass_over(exported, f"--set {min(beaten_by)} is given")
            return
        if exported.name == "BATCHSIZE" and counts_packed_rows:
            value = str(int(value) * SAMPLES_OF_A_ROW)
            self._meanings[exported.name] = f": packed rows, of {SAMPLES_OF_A_ROW} samples each"
        self._overrides[exported.name] = Override(f"{setting.name}={value}", str(exported))

    def apply(self) -> System:
        """Return the system with the changes that variables make; those variables become arguments.

        Raises ConfigError as `load_system` does.
        """
        changing = dict(self._overrides)
        with suppress(ConfigError):  # the system may be valid only with the changes
            changing = self._changing_overrides()
        for variable, override in self._overrides.items():
            if variable not in changing:
                self._agreeing.append(self._exported[variable])
                continue
            self._variables.honour(self._exported[variable], f"--set {override}{self._meanings.get(variable, '')}")
        self._arguments.overrides = [*changing.values(), *self._arguments.overrides]
        return load_system(self._arguments.system, self._arguments.overrides)

    def _changing_overrides(self) -> dict[str, Override]:
        """Return the overrides with other values than the system has."""
        arguments = self._arguments
        system = load_system(arguments.system, arguments.overrides)
        batch = self._overrides.get("BATCHSIZE")
        changing = {}
        if batch is not None and not _has(system, batch):
            changing["BATCHSIZE"] = batch
            # other values follow from the batch, such as the samples between evaluations
            system = load_system(arguments.system, [batch, *arguments.overrides])
        changing |= {variable: text for variable, text in self._overrides.items() if not _has(system, text)}
        return changing

    def check_agreement(self, system: System) -> None:
        """Report the variables of MUST_AGREE whose values the system doesn't have."""
        for exported in self._exported.among(MUST_AGREE):
            setting = MUST_AGREE[exported.name]
            value = self._exported.read(exported, setting.read)
            if value is None:
                continue
            if setting.name in self._set_by_arguments:
                self._variables.pass_over(exported, f"--set {setting.name} is given")
            elif _has(system, Override(f"{setting.name}={value}", str(exported))):
                self._agreeing.append(exported)
            else:
                text = setting.otherwise.format(
                    system=system.name,
                    argument=system.argument,
                    name=setting.name,
                    actual=_value_in_run(system, setting.name),
                    value=value,
                )
                self._exported.problems.append(f"{exported}: {text}")

    def check_effects(self, system: System) -> None:
        """Report the variables whose values the run wouldn't have, because it scales them to another batch."""
        scaled = [override for override in self._overrides.values() if not _has(system, override)]
        if scaled:
            exported = ", ".join(override.origin for override in scaled)
            actual = ", ".join(f"{name} {_value_in_run(system, name)}" for name, _ in map(parsed_override, scaled))
            options = " ".join(f"--set {override}" for override in scaled)
            self._exported.problems.append(
                f"{exported}: {system.name} scales it to its batch (scale_from_batch), to {actual}; unset it, and give "
                f"--set scale_from_batch=null {options}"
            )
        if "BATCHSIZE" in self._overrides and system.layout.data != system.world_size:
            self._exported.problems.append(
                f"{self._overrides['BATCHSIZE'].origin} counts samples per GPU, but {system.name} splits the model "
                "over GPUs (parallel); unset it, and give --set data.global_batch_size=N"
            )

    def agree(self, system: System) -> None:
        """Record the variables with the values that the system has."""
        self._variables.agree(self._agreeing, system.name)

    def name_those_left(self, system: System) -> None:
        """Name the hyper-parameters that the system decides although others are exported, with their values."""
        if not any(self._exported.get(name) for name in HYPER_PARAMETERS):
            return
        left = [
            _with_value(name, setting, system)
            for name, setting in HYPER_PARAMETERS.items()
            if self._exported.get(name) is None and setting.name not in self._set_by_arguments
        ]
        if left:
            self._variables.lines.append(f"not exported, so as {system.name} has: {', '.join(left)}")


def _value_in_run(system: System, name: str) -> Any:
    """Return the value that a run has for a setting of SETTINGS or MUST_AGREE, which the system file need not state."""
    match name:
        case "data.local_batch":
            return system.local_batch
        case "evaluation.interval_samples":
            return system.evaluation_interval
        case _:
            return attrgetter(name)(system)


def _with_value(variable: str, setting: VariableSetting, system: System) -> str:
    """Return a variable that isn't exported with the value in the run and, if it differs, that of published scripts."""
    value = _value_in_run(system, setting.name)
    published = setting.published_default
    if published is None or float(published) == value:
        return f"{variable} {value}"
    return f"{variable} {value} (published scripts take {published})"


def _has(system: System, override: Override) -> bool:
    """Return whether a run of the system has the value that an override gives."""
    name, value = parsed_override(override)
    return bool(_value_in_run(system, name) == value)
