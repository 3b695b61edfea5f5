"""Honour the variables that users of published submissions export, or refuse them by name.

`bertbench launch` and `bertbench train` read them, and so do run_and_time.sh, run.sub and run_with_docker.sh, which
call these. An argument overrides a variable, and a variable overrides the system file. What a variable asks for becomes
an argument. The ranks that this process starts get a record (run_options.py) in which nothing is left to honour; those
that torchrun starts each read the same variables. This file imports no torch.

A variable whose value the system has anyway doesn't become an override: a configuration file exports all variables, but
a smoke run, for example, doesn't read all settings. The value of a setting in a run may follow from other settings, so
it is always that of a loaded system that is compared.
"""

import argparse
import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from operator import attrgetter
from typing import Any

from bertbench.common.errors import ConfigError
from bertbench.config import System, load_system
from bertbench.config.given import Override, check_task, parsed_override
from bertbench.launch.run_options import RunOptions
from bertbench.launch.submission_name import SubmissionName, another_system, counts_packed_rows
from bertbench.launch.variables import (
    BATCH_SETTINGS,
    FOLDERS,
    GPUS,
    HYPER_PARAMETERS,
    MUST_AGREE,
    NODES,
    NOT_READ,
    SAMPLES_OF_A_ROW,
    SETTINGS,
    SPARE_MINUTES,
    SYSTEM,
    TABLE,
    UNLIMITED,
    Exported,
    Row,
    Variables,
    read_exported,
)


def honour(arguments: argparse.Namespace, environment: Mapping[str, str]) -> None:
    """Let the variables complete the arguments of `launch` or `train`; `arguments.variables` says what became of them.

    Sets `system`, `seed` and `overrides`, and `runs` where the command has it; `arguments.passed` is what a script or a
    launcher has passed on. Raises ConfigError with all variables that are malformed, contradict each other or the
    system, or can't be honoured.
    """
    passed = RunOptions.passed_on(environment)
    arguments.passed = passed
    if passed.launched:
        arguments.overrides = passed.overrides
    closes_log = "close" in arguments and arguments.close is not None
    if passed.exported is not None or closes_log:
        arguments.variables = Variables(passed.exported or {})
        if "runs" in arguments:
            arguments.runs = arguments.runs or 1
        return
    _Honouring(arguments, environment).honour_all()


class _Honouring:
    """The variables of one command line, honoured one after the other; their problems are reported together."""

    def __init__(self, arguments: argparse.Namespace, environment: Mapping[str, str]) -> None:
        self.arguments = arguments
        self.exported, self.problems = read_exported(environment)
        self.set_by_arguments = {override.partition("=")[0] for override in arguments.overrides}
        self.place = "local" if "on" not in arguments else arguments.on
        self.in_a_job = arguments.passed.job is not None
        """Whether run.sub calls this: then sbatch has set the job's time limit, and run.sub starts the image."""
        names = [SubmissionName.of_variable(exported) for exported in self.among(SYSTEM)[:1]]
        if arguments.system is not None:
            names.insert(0, SubmissionName.of_argument(arguments.system))
        self.naming = names[0] if names else None
        """What names the system: an argument, or else a variable."""
        self.configurations = [name for name in names if name.variable or name.shape]
        """The names whose endings count: a system's own name isn't one of them."""
        self.packed = counts_packed_rows(self.configurations, self.exported.get("EXTRA_PARAMS"), self.problems)
        self.asked_runs = 1
        """How many runs the command or the job makes."""
        self.overrides: dict[str, Override] = {}
        """The overrides by the variables that give them."""
        self.variables = Variables()
        arguments.variables = self.variables

    def among(self, names: Iterable[str]) -> list[Exported]:
        """Return those of the names that are exported."""
        return [self.exported[name] for name in names if name in self.exported]

    def honour_all(self) -> None:
        """Honour them all. Raises ConfigError with every problem.

        1. Name the system, and count the runs, on which the seed and a job's limits depend.
        2. Turn the variables of settings into overrides. Those that change the system become arguments; the others
           agree with it.
        3. Load the system, and compare with it the variables that must agree.
        4. Say what became of all other variables.
        """
        self._system()
        self._runs()
        self._seed()
        self._settings()
        self._time_limits()
        self._raise_problems()
        agreeing = self._apply_changes()
        system = load_system(self.arguments.system, self.arguments.overrides)
        check_task(system, self.arguments.reads)
        agreeing += self._in_agreement(system)
        for name in self.configurations:
            self.problems += name.contradictions(system, self.set_by_arguments)
        if self.naming is not None:
            self.problems += self.naming.contradicting_sizes(system, self.packed, self.set_by_arguments)
        self._check_effects(system)
        self._raise_problems()
        self.variables.agree(agreeing, system.name)
        self._name_those_left(system)
        self._image_and_folders()
        for exported in self.among(NOT_READ):
            if exported.name == "EXTRA_PARAMS" and self.packed and "BATCHSIZE" in self.exported:
                self.variables.honour(exported, "BATCHSIZE counts packed rows; other options of it are settings here")
            else:
                self.variables.pass_over(exported, TABLE[exported.name].instead)

    def _raise_problems(self) -> None:
        if self.problems:
            raise ConfigError("\n".join(self.problems))

    def _system(self) -> None:
        system_names = self.among(SYSTEM)
        if len({exported.value for exported in system_names}) > 1:
            texts = " and ".join(map(str, system_names))
            raise ConfigError(f"{texts} name different systems: unset one of them")
        if self.naming is None:
            return
        nodes, gpus = (next((size.value for size in self.among(names)), "N") for names in (NODES, GPUS))
        self.arguments.system = self.naming.system(another_system(nodes, gpus))
        for exported in system_names[:1]:
            if exported.value == self.naming.name:
                self.variables.honour(exported, f"the system {self.arguments.system}")
            else:
                self.variables.pass_over(exported, f"the argument {self.naming.typed} names the system")

    def _runs(self) -> None:
        exported = self.exported.get("NEXP")
        if exported is not None:
            self._runs_of(exported)
        if "runs" in self.arguments:
            self.arguments.runs = self.arguments.runs or 1
            self.asked_runs = max(self.asked_runs, self.arguments.runs)

    def _runs_of(self, exported: Exported) -> None:
        runs = int(exported.value)
        makes_one_run = "runs" not in self.arguments  # `bertbench train`
        if self.in_a_job:
            self.variables.honour(exported, f"the job makes {runs} runs")
            self.variables.runs_from = str(exported)
            self.asked_runs = runs
        elif makes_one_run and runs == 1:
            self.variables.honour(exported, "one run")
        elif makes_one_run and self.arguments.resume != "never":
            self.variables.pass_over(exported, "`bertbench train` resumes one run")
        elif makes_one_run:
            self.problems.append(f"{exported}: `bertbench train` makes one run; use `bertbench launch`, or unset it")
        elif self.arguments.runs is not None:
            self.variables.pass_over(exported, f"--runs {self.arguments.runs} is given")
        else:
            self.variables.honour(exported, f"--runs {runs}")
            self.variables.runs_from = str(exported)
            self.arguments.runs = runs

    def _seed(self) -> None:
        exported = self.exported.get("SEED")
        if exported is None:
            return
        if self.arguments.seed is not None:
            self.variables.pass_over(exported, f"--seed {self.arguments.seed} is given")
        elif self.asked_runs > 1:
            asked_runs = self.variables.runs_as_typed(self.asked_runs)
            self.problems.append(f"{exported} with {asked_runs} would repeat the same run; unset one of them")
        else:
            self.variables.honour(exported, f"--seed {exported.value}")
            self.arguments.seed = int(exported.value)

    def _settings(self) -> None:
        """Turn the variables of settings into overrides, unless an argument sets the same."""
        for exported in self.among(SETTINGS):
            setting = SETTINGS[exported.name].stands_for
            same_number = BATCH_SETTINGS if setting in BATCH_SETTINGS else (setting,)
            beaten_by = self.set_by_arguments.intersection(same_number)
            value = exported.value
            if exported.name == "BATCHSIZE" and self.packed:
                value = str(int(value) * SAMPLES_OF_A_ROW)
            if beaten_by:
                self.variables.pass_over(exported, f"--set {min(beaten_by)} is given")
            else:
                self.overrides[exported.name] = Override(f"{setting}={value}", str(exported))

    def _time_limits(self) -> None:
        """Let the job end after its own limit or, if it has none, after the sum of its runs' limits."""
        limits = self.among(("WALLTIME", "WALLTIME_MINUTES"))
        if not limits:
            return
        of_job, of_run = self.exported.get("WALLTIME"), self.exported.get("WALLTIME_MINUTES")
        job_minutes = float(of_job.value) if of_job else math.inf
        needed = self.asked_runs * float(of_run.value) + SPARE_MINUTES if of_run else math.inf
        needed_text = UNLIMITED if math.isinf(needed) else f"{needed:.0f}"
        texts = " and ".join(map(str, limits))
        if self.in_a_job:
            self.variables.lines.append(f"{texts}: the job ends when sbatch --time says so")
        elif self.place == "slurm":
            self.variables.walltime = of_job.text if of_job else needed_text
            minutes = job_minutes if of_job else needed
            end = "has no time limit of its own" if math.isinf(minutes) else f"ends after {minutes:.0f} minutes"
            self.variables.honour(limits[0], f"the job {end}")
        else:
            self.variables.lines.append(f"{texts}: not used, because only jobs of --on slurm have a time limit")
            return
        if of_run and job_minutes < needed:
            asked_runs = self.variables.runs_as_typed(self.asked_runs)
            self.variables.lines.append(
                f"warning: {of_job} is less than {asked_runs} may need with {of_run}; export WALLTIME={needed_text}, "
                "or export NEXP and source the configuration file again"
            )

    def _apply_changes(self) -> list[Exported]:
        """Let the overrides that change the system become arguments; return the variables that agree with it.

        Raises ConfigError as `load_system` does.
        """
        changing = dict(self.overrides)
        with suppress(ConfigError):  # the system may be valid only with the changes
            changing = self._changing_overrides()
        for name, override in changing.items():
            packed = name == "BATCHSIZE" and self.packed
            meaning = f": packed rows, of {SAMPLES_OF_A_ROW} samples each" if packed else ""
            self.variables.honour(self.exported[name], f"--set {override}{meaning}")
        self.arguments.overrides = [*changing.values(), *self.arguments.overrides]
        return [self.exported[name] for name in self.overrides if name not in changing]

    def _changing_overrides(self) -> dict[str, Override]:
        """Return the overrides with other values than the system has."""
        given = self.arguments.overrides
        system = load_system(self.arguments.system, given)
        changing = {}
        for name, override in self.overrides.items():
            if _has(system, override):
                continue
            changing[name] = override
            if name == "BATCHSIZE":  # other values follow from it, such as the samples between evaluations
                system = load_system(self.arguments.system, [override, *given])
        return changing

    def _in_agreement(self, system: System) -> list[Exported]:
        """Return the variables of MUST_AGREE whose values the system has, and report the others."""
        agreeing = []
        for exported in self.among(MUST_AGREE):
            row = MUST_AGREE[exported.name]
            if row.stands_for in self.set_by_arguments:
                self.variables.pass_over(exported, f"--set {row.stands_for} is given")
            elif _has(system, Override(f"{row.stands_for}={exported.value}", str(exported))):
                agreeing.append(exported)
            else:
                otherwise = row.otherwise.format(
                    system=system.name,
                    argument=system.argument,
                    name=row.stands_for,
                    actual=_value_in_run(system, row.stands_for),
                    value=exported.value,
                )
                self.problems.append(f"{exported}: {otherwise}")
        return agreeing

    def _check_effects(self, system: System) -> None:
        """Report the variables whose values the run wouldn't have, because it scales them to another batch."""
        scaled = [override for override in self.overrides.values() if not _has(system, override)]
        if scaled:
            exported = ", ".join(override.origin for override in scaled)
            actual = ", ".join(f"{name} {_value_in_run(system, name)}" for name, _ in map(parsed_override, scaled))
            options = " ".join(f"--set {override}" for override in scaled)
            self.problems.append(
                f"{exported}: {system.name} scales it to its batch (scale_from_batch), to {actual}; unset it, and give "
                f"--set scale_from_batch=null {options}"
            )
        if "BATCHSIZE" in self.overrides and system.layout.data != system.world_size:
            self.problems.append(
                f"{self.exported['BATCHSIZE']} counts samples per GPU, but {system.name} splits the model over GPUs "
                "(parallel); unset it, and give --set data.global_batch_size=N"
            )

    def _image_and_folders(self) -> None:
        for exported in self.among(("CONT", *FOLDERS)):
            if exported.name == "CONT" and self.place == "local" and not self.in_a_job:
                self.variables.pass_over(exported, "these ranks don't start in a container; see --on")
            else:
                self.variables.honour(exported, TABLE[exported.name].stands_for)

    def _name_those_left(self, system: System) -> None:
        """Name the hyper-parameters that the system decides although others are exported, with their values."""
        if not self.among(HYPER_PARAMETERS):  # a system for fine-tuning, which is refused later, may have no values
            return
        left = [
            _with_value(name, row, system)
            for name, row in {**HYPER_PARAMETERS, **MUST_AGREE}.items()
            if name not in self.exported
            and row.stands_for not in self.set_by_arguments
            and (name in HYPER_PARAMETERS or _differs_from_published(row, system))
        ]
        if left:
            self.variables.lines.append(f"not exported, so as {system.name} has: {', '.join(left)}")


def _value_in_run(system: System, setting: str) -> Any:
    """Return the value that a run has for a setting of the table, which the system file need not state."""
    match setting:
        case "data.local_batch":
            return system.local_batch
        case "evaluation.interval_samples":
            return system.evaluation_interval
        case _:
            return attrgetter(setting)(system)


def _has(system: System, override: Override) -> bool:
    """Return whether a run of the system has the value that an override gives."""
    setting, value = parsed_override(override)
    return bool(_value_in_run(system, setting) == value)


def _with_value(variable: str, row: Row, system: System) -> str:
    """Return a variable that isn't exported with the value in the run and, if it differs, that of published scripts."""
    value = _value_in_run(system, row.stands_for)
    if not _differs_from_published(row, system):
        return f"{variable} {value}"
    return f"{variable} {value} (published scripts take {row.published_default})"


def _differs_from_published(row: Row, system: System) -> bool:
    """Return whether a run has another value than published scripts, where these have a default."""
    if row.published_default is None:
        return False
    return parsed_override(f"{row.stands_for}={row.published_default}")[1] != _value_in_run(system, row.stands_for)
