"""Honour the variables that users of published submissions export, or refuse them by name.

`bertbench launch` and `bertbench train` read them, and so do run_and_time.sh, run.sub and run_with_docker.sh, which
call these. An argument overrides a variable, and a variable overrides the system file. What a variable asks for becomes
an argument. The ranks that this process starts get a record (options.py) in which nothing is left to honour; those that
torchrun starts each read the same variables. This file imports no torch.

These methods honour the variables: `_system` (DGXSYSTEM, CONFIG_NAME, PGSYSTEM), `_runs` (NEXP, RUNS), `_seed` (SEED),
`_time_limit` (WALLTIME, WALLTIME_MINUTES), `_image` (CONT), `_folders` (DATADIR, LOGDIR). Those of `ExportedSettings`
honour all variables that stand for settings of the system, such as BATCHSIZE, LR and DGXNNODES.
"""

import argparse
import time
from collections.abc import Mapping
from contextlib import suppress

from bertbench.common.errors import ConfigError, RunError
from bertbench.config import load_system
from bertbench.distributed.ranks import Ranks, launched_ranks
from bertbench.launch.exported_settings import ExportedSettings
from bertbench.launch.options import RunOptions
from bertbench.launch.submission_name import (
    SubmissionName,
    another_system,
    contradicting_endings,
    endings_of,
    plain_name,
    shipped_system,
)
from bertbench.launch.time_limits import TimeLimits
from bertbench.launch.variables import (
    FOLDERS,
    GPUS_VARIABLES,
    NODES_VARIABLES,
    NOT_READ,
    PACKED_OPTION,
    REFUSED,
    REFUSED_UNLESS_ZERO,
    RUNS_VARIABLES,
    SYSTEM_VARIABLES,
    TIME_LIMITS,
    Exported,
    ExportedVariables,
    Variables,
    is_zero,
    whole_number,
)

_MESSAGE_S = 3  # time for one rank of a node to print a message that all its ranks have


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
    runs_here = "on" not in arguments or (arguments.on == "local" and not arguments.dry_run)
    ranks: Ranks | None = None
    if runs_here:
        with suppress(RunError):  # the command itself reports it
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
        self.exported = ExportedVariables(environment)
        self.ranks = ranks
        self.set_by_arguments = {override.partition("=")[0] for override in arguments.overrides}
        self.place = "local" if "on" not in arguments else arguments.on
        self.submission: SubmissionName | None = None
        """What the submission's name says, if the user exported one."""
        self.submission_is_the_system = False
        self.in_a_job = arguments.passed.job is not None
        """Whether run.sub calls this: then sbatch has set the job's time limit, and run.sub starts the image."""
        self.asked_runs = 1
        """How many runs the command or the job makes."""
        self.variables = Variables()
        arguments.variables = self.variables
        self.settings = ExportedSettings(arguments, self.exported, self.variables, self.set_by_arguments)

    def honour_all(self) -> None:
        """Honour them all. Raises ConfigError with every problem."""
        self._system()
        self._runs()
        self._seed()
        self.settings.read(self._counts_packed_rows())
        self._time_limit()
        self._image()
        self._refuse()
        self._raise_problems()
        system = self.settings.apply()
        self.settings.check_agreement(system)
        for exported in self.exported.among(SYSTEM_VARIABLES)[:1]:
            self.exported.problems += contradicting_endings(exported, system, self.set_by_arguments)
        if self.submission is not None and self.submission_is_the_system:
            self.exported.problems += self.submission.contradicting_shape(system, self.set_by_arguments)
        self.settings.check_effects(system)
        self._raise_problems()
        self.settings.agree(system)
        self.settings.name_those_left(system)
        self._folders()
        for exported in self.exported.among(NOT_READ):
            self.variables.pass_over(exported, NOT_READ[exported.name])

    def _raise_problems(self) -> None:
        if self.exported.problems:
            raise ConfigError("\n".join(self.exported.problems))

    def _system(self) -> None:
        exported = self.exported.among(SYSTEM_VARIABLES)
        if not exported:
            return
        if len({plain_name(variable.value) for variable in exported}) > 1:
            texts = " and ".join(map(str, exported))
            raise ConfigError(f"{texts} name different systems: unset one of them, or give SYSTEM")
        first = exported[0]
        name = plain_name(first.value)
        self.submission = SubmissionName.parse(name)
        argument = self.arguments.system
        if argument is None:
            self._take_system(first, name)
        elif argument == name:
            self.variables.honour(first, "the system")
        else:
            self.variables.pass_over(first, f"the argument {argument} names the system")

    def _take_system(self, exported: Exported, name: str) -> None:
        try:
            if self.submission is None:
                self.arguments.system = name
            else:
                self.arguments.system = shipped_system(self.submission)
                self.submission_is_the_system = True
            load_system(self.arguments.system)
        except ConfigError as error:
            is_unknown_name = self.submission is None and not name.endswith(".json")
            remedy = f"; {self._another_system()}" if is_unknown_name else ""
            raise ConfigError(f"{exported}: {error}{remedy}") from error
        self.variables.honour(exported, f"the system {self.arguments.system}")

    def _another_system(self) -> str:
        """Return how to write a system of the exported number of nodes and GPUs."""
        nodes, gpus = (
            next((variable.value for variable in self.exported.among(names)), "N")
            for names in (NODES_VARIABLES, GPUS_VARIABLES)
        )
        return another_system(nodes, gpus)

    def _counts_packed_rows(self) -> bool:
        """Return whether BATCHSIZE, and the batch in the submission's name, count packed rows."""
        names = [plain_name(exported.value) for exported in self.exported.among(SYSTEM_VARIABLES)]
        named_packed = any("pack" in endings_of(name) for name in names)
        extra = self.exported.get("EXTRA_PARAMS")
        if extra is None:
            return named_packed
        packed = PACKED_OPTION in extra.value.split()
        if self.submission is not None:
            self.submission = self.submission._replace(packed=packed)
        if named_packed and not packed:
            self.exported.problems.append(
                f"the name {names[0]} ends with _pack, but EXTRA_PARAMS lacks {PACKED_OPTION}; export the name "
                "without _pack, or EXTRA_PARAMS with it"
            )
        return packed

    def _runs(self) -> None:
        exported = self.exported.among(RUNS_VARIABLES)
        if len({variable.value for variable in exported}) > 1:
            texts = " and ".join(map(str, exported))
            self.exported.problems.append(f"{texts} differ: unset one of them")
        makes_one_run = "runs" not in self.arguments  # `bertbench train`
        if exported:
            first = exported[0]
            number = self.exported.read(first, whole_number(1))
            if number and self.in_a_job:
                self.variables.honour(first, f"the job makes {number} runs")
                self.variables.runs_from = str(first)
                self.asked_runs = int(number)
            elif number and makes_one_run:
                self._runs_of_train(first, int(number))
            elif number:
                self._runs_of_launch(first, int(number))
        if makes_one_run:
            return
        self.arguments.runs = self.arguments.runs or 1
        self.asked_runs = max(self.asked_runs, self.arguments.runs)
        launcher_started_ranks = self.ranks is not None and self.ranks.size > 1
        if self.arguments.runs > 1 and launcher_started_ranks:
            asked_runs = self.variables.runs_as_typed(self.arguments.runs)
            self.exported.problems.append(
                f"{asked_runs}: torchrun starts the ranks of one run; start it once for each run, or set it to 1"
            )

    def _runs_of_train(self, exported: Exported, runs: int) -> None:
        if runs == 1:
            self.variables.honour(exported, "one run")
        elif self.arguments.resume != "never":
            self.variables.pass_over(exported, "`bertbench train` resumes one run")
        else:
            self.exported.problems.append(
                f"{exported}: `bertbench train` makes one run; use `bertbench launch`, or unset it"
            )

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
        seed = self.exported.read(exported, whole_number(0))
        if self.arguments.seed is not None:
            self.variables.pass_over(exported, f"--seed {self.arguments.seed} is given")
        elif self.asked_runs > 1:
            asked_runs = self.variables.runs_as_typed(self.asked_runs)
            self.exported.problems.append(f"{exported} with {asked_runs} would repeat the same run; unset one of them")
        elif seed is not None:
            self.variables.honour(exported, f"--seed {seed}")
            self.arguments.seed = int(seed)

    def _time_limit(self) -> None:
        job_limit, run_limit = (self.exported.get(name) for name in TIME_LIMITS)
        if job_limit is None and run_limit is None:
            return
        limits = TimeLimits(job_limit, run_limit, self.asked_runs)
        self.exported.problems += limits.problems
        if self.in_a_job:
            self.variables.lines.append(f"{limits}: the job ends when sbatch --time says so")
        elif self.place == "slurm":
            limits.set_walltime(self.variables)
        else:
            self.variables.lines.append(f"{limits}: not used, because only jobs of --on slurm have a time limit")
            return
        self.variables.lines += limits.warnings(self.variables.runs_as_typed(self.asked_runs))

    def _image(self) -> None:
        exported = self.exported.get("CONT")
        if exported is None:
            return
        if self.place == "local" and not self.in_a_job:
            self.variables.pass_over(exported, "these ranks don't start in a container; see --on")
        else:
            self.variables.honour(exported, "the image")

    def _refuse(self) -> None:
        for exported in self.exported.among(REFUSED):
            self.exported.problems.append(f"{exported}: {REFUSED[exported.name]}")
        for exported in self.exported.among(REFUSED_UNLESS_ZERO):
            if not is_zero(exported.value):
                self.exported.problems.append(f"{exported}: {REFUSED_UNLESS_ZERO[exported.name]}")

    def _folders(self) -> None:
        for exported in self.exported.among(FOLDERS):
            self.variables.honour(exported, f"the folder of {FOLDERS[exported.name]}")
