"""Honour the variables that people of published submissions export, or refuse them by name.

`bertbench launch` and `bertbench train` read them, and so do run_and_time.sh, run.sub and run_with_docker.sh, which
call these. An argument beats a variable, and a variable beats the system file. What a variable asks for becomes an
argument: ranks that this process starts get arguments, with RECORD as the sign that nothing is left to honour. Ranks
that torchrun or srun start read the same variables each. No torch here.

What happens with a variable is in the method of its name: `_system` (DGXSYSTEM, CONFIG_NAME), `_runs` (NEXP, RUNS),
`_seed` (SEED), `_setting` (BATCHSIZE, LR and all others of SETTINGS), `_first_evaluation` (EVAL_ITER_START_SAMPLES),
`_time_limit` (WALLTIME, WALLTIME_MINUTES), `_image` (CONT), `_shape` (DGXNNODES, DGXNGPU), `_folders` (DATADIR,
LOGDIR).
A setting that the system has anyway becomes no argument: a configuration file exports all, a smoke run reads some.
"""

import argparse
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from operator import attrgetter
from typing import Any

from bertbench.common.errors import ConfigError, RunError
from bertbench.config import System, load_system
from bertbench.config.load import Override, parsed_override
from bertbench.distributed.ranks import Ranks, launched_ranks
from bertbench.launch.submission_name import SubmissionName, plain_name, shipped_system
from bertbench.launch.time_limits import TimeLimits
from bertbench.launch.variables import (
    BATCH_SETTINGS,
    FOLDERS,
    NOT_READ,
    RECORD,
    REFUSED,
    RUNS_VARIABLES,
    SAMPLES_OF_A_ROW,
    SETTINGS,
    SHAPE,
    SYSTEM_VARIABLES,
    TIME_LIMITS,
    VARIABLES,
    Exported,
    Variables,
    VariableSetting,
    whole_number,
)

_MESSAGE_S = 3  # in which one rank of a node prints a message that all of them have


def honour(arguments: argparse.Namespace, environment: Mapping[str, str]) -> None:
    """Let the variables complete the arguments of `launch` or `train`; `arguments.variables` says what became of them.

    Sets `system`, `seed` and `overrides`, and `runs` where the command has it. Raises ConfigError with all variables
    that are malformed, contradict each other or the system, or can't be honoured.
    """
    closes_log = "close" in arguments and arguments.close is not None
    if RECORD in environment or closes_log:
        arguments.variables = Variables.from_record(environment.get(RECORD, ""))
        if "runs" in arguments:
            arguments.runs = arguments.runs or 1
        return
    runs_here = "on" not in arguments or (arguments.on == "local" and not arguments.dry_run)
    ranks: Ranks | None = None
    if runs_here:
        with suppress(RunError):  # the command says so
            ranks = launched_ranks(environment)
    try:
        _Honouring(arguments, environment, ranks).honour_all()
    except ConfigError:
        if ranks is not None and ranks.local_rank:
            time.sleep(_MESSAGE_S)  # the launcher stops all ranks once one has ended
            raise SystemExit(ConfigError.exit_code) from None
        raise


class _Honouring:
    """The variables of one command line, honoured one after the other; their problems are reported together."""

    def __init__(self, arguments: argparse.Namespace, environment: Mapping[str, str], ranks: Ranks | None) -> None:
        self.arguments = arguments
        self.exported: dict[str, Exported] = {}
        for name in VARIABLES:
            value = environment.get(name, "").strip()
            if value:
                self.exported[name] = Exported(name, value)
        self.ranks = ranks
        self.set_by_arguments = {override.partition("=")[0] for override in arguments.overrides}
        self.place = "local" if "on" not in arguments else arguments.on
        self.submission: SubmissionName | None = None
        """What names the system, if a submission does."""
        self.counts_packed_rows = False
        self.in_a_job = getattr(arguments, "resolve", None) is not None
        """Whether run.sub asks: sbatch has set the job's time limit, and run.sub starts the image."""
        self.overrides: dict[str, Override] = {}
        """By the variable that gives it."""
        self.meanings: dict[str, str] = {}
        """What the user should know about an override, by its variable."""
        self.agreeing: list[Exported] = []
        """Variables with the values that the system has."""
        self.problems: list[str] = []
        self.variables = Variables()
        arguments.variables = self.variables

    def honour_all(self) -> None:
        """Honour them all. Raises ConfigError with every problem."""
        self._system()
        self._runs()
        self._seed()
        for name, setting in SETTINGS.items():
            if name in self.exported:
                self._setting(self.exported[name], setting)
        self._time_limit()
        self._image()
        for name, why in REFUSED.items():
            if name in self.exported:
                self.problems.append(f"{self.exported[name]}: {why}")
        self._raise_problems()
        system = self._apply_settings()
        self._first_evaluation(system)
        self._shape(system)
        if self.submission is not None:
            self.problems += self.submission.contradictions(system, self.set_by_arguments)
        self._check_effects(system)
        self._raise_problems()
        self.variables.agree(self.agreeing, system.name)
        self._folders()
        for name, instead in NOT_READ.items():
            if name in self.exported:
                self.variables.pass_over(self.exported[name], instead)

    def _raise_problems(self) -> None:
        if self.problems:
            raise ConfigError("\n".join(self.problems))

    def _read(self, exported: Exported, read: Callable[[str], str]) -> str | None:
        """Return a variable's value, or note that it is malformed."""
        try:
            return read(exported.value)
        except ValueError as error:
            self.problems.append(f"{exported}: expected {error}")
            return None

    def _system(self) -> None:
        exported = [self.exported[name] for name in SYSTEM_VARIABLES if name in self.exported]
        if not exported:
            return
        if len({plain_name(variable.value) for variable in exported}) > 1:
            texts = " and ".join(map(str, exported))
            raise ConfigError(f"{texts} name different systems: unset one of them, or give SYSTEM")
        first = exported[0]
        name = plain_name(first.value)
        submission = SubmissionName.parse(name)
        self.counts_packed_rows = submission is not None and submission.packed
        argument = self.arguments.system
        if argument is None:
            self._take_system(first, name, submission)
        elif argument == name:
            self.variables.honour(first, "the system")
        else:
            self.variables.pass_over(first, f"the argument {argument} names the system")

    def _take_system(self, exported: Exported, name: str, submission: SubmissionName | None) -> None:
        self.submission = submission
        try:
            self.arguments.system = name if submission is None else shipped_system(submission)
            load_system(self.arguments.system)
        except ConfigError as error:
            raise ConfigError(f"{exported}: {error}") from error
        self.variables.honour(exported, f"the system {self.arguments.system}")

    def _runs(self) -> None:
        exported = [self.exported[name] for name in RUNS_VARIABLES if name in self.exported]
        if len({variable.value for variable in exported}) > 1:
            texts = " and ".join(map(str, exported))
            self.problems.append(f"{texts} differ: unset one of them")
        makes_one_run = "runs" not in self.arguments  # `bertbench train`
        if exported:
            first = exported[0]
            number = self._read(first, whole_number(1))
            if number and makes_one_run:
                self._runs_of_train(first, int(number))
            elif number:
                self._runs_of_launch(first, int(number))
        if makes_one_run:
            return
        self.arguments.runs = self.arguments.runs or 1
        launcher_started_ranks = self.ranks is not None and self.ranks.size > 1
        if self.arguments.runs > 1 and launcher_started_ranks:
            asked_runs = self.variables.runs_as_typed(self.arguments.runs)
            self.problems.append(
                f"{asked_runs}: torchrun and srun start the ranks of one run; start them once for each run, or set it "
                "to 1"
            )

    def _runs_of_train(self, exported: Exported, runs: int) -> None:
        if runs == 1:
            self.variables.honour(exported, "one run")
        elif self.arguments.resume != "never":
            self.variables.pass_over(exported, "`bertbench train` resumes one run")
        else:
            self.problems.append(f"{exported}: `bertbench train` makes one run; use `bertbench launch`, or unset it")

    def _runs_of_launch(self, exported: Exported, runs: int) -> None:
        if self.arguments.runs is not None:
            self.variables.pass_over(exported, f"--runs {self.arguments.runs} is given")
        else:
            self.variables.honour(exported, f"--runs {runs}")
            self.variables.runs_from = str(exported)
            self.arguments.runs = runs

    def _seed(self) -> None:
        exported = self.exported.get("SEED")
        if exported is None:
            return
        seed = self._read(exported, whole_number(0))
        makes_several_runs = "runs" in self.arguments and self.arguments.runs > 1
        if self.arguments.seed is not None:
            self.variables.pass_over(exported, f"--seed {self.arguments.seed} is given")
        elif makes_several_runs:
            asked_runs = self.variables.runs_as_typed(self.arguments.runs)
            self.problems.append(f"{exported} with {asked_runs} would repeat the same run; unset one of them")
        elif seed is not None:
            self.variables.honour(exported, f"--seed {seed}")
            self.variables.words += ["--seed", seed]
            self.arguments.seed = int(seed)

    def _setting(self, exported: Exported, setting: VariableSetting) -> None:
        if exported.name == "EVALDIR" and self.place == "kubernetes":
            self.problems.append(
                f"{exported}: no pod sees a folder of this machine; unset it, put the samples into the volume of "
                "DATA_CLAIM, and give --set data.eval_path=FOLDER"
            )
            return
        value = self._read(exported, setting.read)
        if value is None:
            return
        same_number = BATCH_SETTINGS if setting.name in BATCH_SETTINGS else (setting.name,)
        beaten_by = self.set_by_arguments.intersection(same_number)
        if beaten_by:
            self.variables.pass_over(exported, f"--set {min(beaten_by)} is given")
            return
        if exported.name == "BATCHSIZE" and self.counts_packed_rows:
            value = str(int(value) * SAMPLES_OF_A_ROW)
            self.meanings[exported.name] = f": packed rows, of {SAMPLES_OF_A_ROW} samples each"
        self.overrides[exported.name] = Override(f"{setting.name}={value}", str(exported))

    def _apply_settings(self) -> System:
        """Return the system with what the settings' variables change; these become arguments."""
        changing = dict(self.overrides)
        with suppress(ConfigError):  # the system may need what they change
            changing = self._changing_overrides()
        for variable, override in self.overrides.items():
            if variable not in changing:
                self.agreeing.append(self.exported[variable])
                continue
            self.variables.honour(self.exported[variable], f"--set {override}{self.meanings.get(variable, '')}")
            self.variables.words += ["--set", str(override)]
        self.arguments.overrides = [*changing.values(), *self.arguments.overrides]
        return load_system(self.arguments.system, self.arguments.overrides)

    def _changing_overrides(self) -> dict[str, Override]:
        """Return the overrides with other values than the system has."""
        arguments = self.arguments
        system = load_system(arguments.system, arguments.overrides)
        batch = self.overrides.get("BATCHSIZE")
        changing = {}
        if batch is not None and not _has(system, batch):
            changing["BATCHSIZE"] = batch
            # others follow from it, such as samples between evaluations
            system = load_system(arguments.system, [batch, *arguments.overrides])
        changing |= {variable: text for variable, text in self.overrides.items() if not _has(system, text)}
        return changing

    def _first_evaluation(self, system: System) -> None:
        first = self.exported.get("EVAL_ITER_START_SAMPLES")
        if first is None:
            return
        interval = system.evaluation_interval
        if first.value == str(interval):
            self.agreeing.append(first)
            return
        self.problems.append(
            f"{first}: the first evaluation is after one interval, EVAL_ITER_SAMPLES={interval}; export the same "
            "number, or unset it"
        )

    def _time_limit(self) -> None:
        job_limit, run_limit = (self.exported.get(name) for name in TIME_LIMITS)
        if job_limit is None and run_limit is None:
            return
        runs: int = getattr(self.arguments, "runs", None) or 1
        limits = TimeLimits(job_limit, run_limit, runs)
        self.problems += limits.problems
        if self.in_a_job:
            self.variables.lines.append(f"{limits}: the job ends when sbatch --time says so")
        elif self.place in ("slurm", "kubernetes"):
            limits.set_walltime(self.variables)
        else:
            self.variables.lines.append(
                f"{limits}: not used, because only --on slurm and kubernetes end a job; sbatch takes --time"
            )
            return
        self.variables.lines += limits.warnings(self.variables.runs_as_typed(runs))

    def _image(self) -> None:
        exported = self.exported.get("CONT")
        if exported is None:
            return
        if self.place == "local" and not self.in_a_job:
            self.variables.pass_over(exported, "these ranks start in no container of their own; see --on")
        else:
            self.variables.honour(exported, "the image")

    def _shape(self, system: System) -> None:
        for name, setting in SHAPE.items():
            exported = self.exported.get(name)
            if exported is None:
                continue
            number = self._read(exported, whole_number(1))
            if number is None:
                continue
            actual = value_in_run(system, setting)
            if setting in self.set_by_arguments:
                self.variables.pass_over(exported, f"--set {setting} is given")
            elif int(number) == actual:
                self.agreeing.append(exported)
            else:
                counted = "nodes" if name == "DGXNNODES" else "ranks on each node"
                self.problems.append(
                    f"{exported}: {system.name} has {actual} {counted}; unset it, name another system (`bertbench "
                    f"config list`), or adapt this one with `bertbench config scale {system.argument} --gpus N "
                    "--out FILE.json`"
                )

    def _check_effects(self, system: System) -> None:
        """Note each variable whose value isn't the run's: hyper-parameters scaled to another batch."""
        scaled = [override for override in self.overrides.values() if not _has(system, override)]
        if scaled:
            exported = ", ".join(override.origin for override in scaled)
            actual = ", ".join(f"{name} {value_in_run(system, name)}" for name, _ in map(parsed_override, scaled))
            options = " ".join(f"--set {override}" for override in scaled)
            self.problems.append(
                f"{exported}: {system.name} scales it to its batch (scale_from_batch), to {actual}; unset it, and give "
                f"--set scale_from_batch=null {options}"
            )
        if "BATCHSIZE" in self.overrides and system.layout.data != system.world_size:
            self.problems.append(
                f"{self.overrides['BATCHSIZE'].origin} counts samples per GPU, and {system.name} splits the model over "
                "GPUs (parallel); unset it, and give --set data.global_batch_size=N"
            )

    def _folders(self) -> None:
        for name, content in FOLDERS.items():
            exported = self.exported.get(name)
            if exported is None:
                continue
            if self.place == "kubernetes":
                self.variables.pass_over(exported, "pods have the volumes of DATA_CLAIM and RUNS_CLAIM")
            else:
                self.variables.honour(exported, f"the folder of {content}")


def value_in_run(system: System, name: str) -> Any:
    """Return the value that a run has for a setting of SETTINGS or SHAPE, which the system file need not state."""
    match name:
        case "data.local_batch":
            return system.local_batch
        case "evaluation.interval_samples":
            return system.evaluation_interval
        case _:
            return attrgetter(name)(system)


def _has(system: System, override: Override) -> bool:
    """Return whether a run of the system has the value that an override gives."""
    name, value = parsed_override(override)
    return bool(value_in_run(system, name) == value)
