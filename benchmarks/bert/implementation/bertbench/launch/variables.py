"""Honour the variables that people of published submissions export, or refuse them by name.

`bertbench launch` and `bertbench train` read them, and so do run_and_time.sh, run.sub and run_with_docker.sh, which
call these. An argument beats a variable, and a variable beats the system file. What a variable asks for becomes an
argument: ranks that this process starts get arguments, with RECORD as the sign that nothing is left to honour. Ranks
that torchrun or srun start read the same variables each. docs/running.md has the table. No torch here.
"""

import argparse
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from urllib.parse import parse_qsl, urlencode

from bertbench.common.errors import ConfigError, RunError
from bertbench.config import System, load_system
from bertbench.config.load import Override
from bertbench.distributed.ranks import Ranks, launched_ranks
from bertbench.launch.exported import (
    BATCHES,
    NOT_READ,
    PLACES,
    REFUSED,
    RUNS_VARIABLES,
    SAMPLES_OF_A_ROW,
    SETTINGS,
    SHAPE,
    SYSTEM_VARIABLES,
    VARIABLES,
    Setting,
    minutes_of,
    whole,
)
from bertbench.launch.submission import Submission, shipped_system

RECORD = "BERTBENCH_VARIABLES"
"""Variable with what a launcher has honoured, URL-encoded: a comma or a blank would break Slurm's --export."""
_MESSAGE_S = 3  # in which one rank of a node prints a message that all of them have


@dataclass
class Variables:
    """What became of the variables."""

    values: dict[str, str] = field(default_factory=dict)
    """Those honoured, as they were exported; a run records them."""

    lines: list[str] = field(default_factory=list)
    """What became of each, for the user."""

    walltime: str | None = None
    """WALLTIME as sbatch takes it: the limit of the whole job."""

    runs_from: str = "--runs"
    """What gave the number of runs."""

    words: list[str] = field(default_factory=list)
    """The arguments that they became, for `bertbench train`."""

    def honour(self, name: str, value: str, effect: str) -> None:
        """Record that a variable has this effect."""
        self.values[name] = value
        self.lines.append(f"{name}={value}: {effect}")

    def pass_over(self, name: str, value: str, why: str) -> None:
        """Say why a variable has no effect."""
        self.lines.append(f"{name}={value} is not used: {why}")

    def record(self) -> str:
        """Return RECORD's value."""
        return urlencode(self.values, errors="surrogateescape")

    def same_for_all_ranks(self) -> dict[str, str]:
        """Return those by which ranks would differ; a node may have folders of its own."""
        return {name: value for name, value in self.values.items() if name not in PLACES}


def honour(arguments: argparse.Namespace, environment: Mapping[str, str]) -> None:
    """Let the variables complete the arguments of `launch` or `train`; `arguments.variables` says what became of them.

    Sets `system`, `seed` and `overrides`, and `runs` where the command has it. Raises ConfigError with all variables
    that are malformed, contradict each other or the system, or can't be honoured.
    """
    closes_log = "close" in arguments and arguments.close is not None
    if RECORD in environment or closes_log:
        recorded = parse_qsl(environment.get(RECORD, ""), errors="surrogateescape")
        arguments.variables = Variables(dict(recorded))
        if "runs" in arguments:
            arguments.runs = arguments.runs or 1
        return
    here = "on" not in arguments or (arguments.on == "local" and not arguments.dry_run)
    ranks: Ranks | None = None
    if here:
        with suppress(RunError):  # the command says so
            ranks = launched_ranks(environment)
    exported = {name: text for name in VARIABLES if (text := environment.get(name, "").strip())}
    try:
        _Honouring(arguments, exported, ranks).all()
    except ConfigError:
        if ranks is not None and ranks.local_rank:
            time.sleep(_MESSAGE_S)  # the launcher stops all ranks once one has ended
            raise SystemExit(ConfigError.exit_code) from None
        raise


class _Honouring:
    """The variables of one command line, honoured one after the other; their problems are reported together."""

    def __init__(self, arguments: argparse.Namespace, exported: dict[str, str], ranks: Ranks | None) -> None:
        self.arguments, self.exported, self.ranks = arguments, exported, ranks
        self.given = {override.partition("=")[0] for override in arguments.overrides}  # by --set
        self.place = "local" if "on" not in arguments else arguments.on
        self.submission: Submission | None = None
        """What names the system, if a submission does."""
        self.packed = False
        self.overrides: dict[str, Override] = {}
        self.wrong: list[str] = []
        arguments.variables = self.variables = Variables()

    def all(self) -> None:
        """Honour them all. Raises ConfigError with every problem."""
        self._system()
        self._runs()
        self._seed()
        for name, setting in SETTINGS.items():
            self._setting(name, setting)
        self._first_evaluation()
        self._walltime()
        self._image()
        for name, why in REFUSED.items():
            if name in self.exported:
                self.wrong.append(f"{name}={self.exported[name]}: {why}")
        self._stop_if_wrong()
        self.variables.words += [word for override in self.overrides.values() for word in ("--set", str(override))]
        self.arguments.overrides = [*self.overrides.values(), *self.arguments.overrides]
        system = load_system(self.arguments.system, self.arguments.overrides)
        self._check_shape(system)
        self._check_submission(system)
        self._check_effects(system)
        self._stop_if_wrong()
        for name, what in PLACES.items():
            if name in self.exported and self.place == "kubernetes":
                self.variables.pass_over(
                    name, self.exported[name], "pods have the volumes of DATA_CLAIM and RUNS_CLAIM"
                )
            elif name in self.exported:
                self.variables.honour(name, self.exported[name], f"the folder of {what}")
        for name, instead in NOT_READ.items():
            if name in self.exported:
                self.variables.pass_over(name, self.exported[name], instead)

    def _stop_if_wrong(self) -> None:
        if self.wrong:
            raise ConfigError("\n".join(self.wrong))

    def _synonym(self, names: tuple[str, ...]) -> tuple[str, str] | None:
        """Return the first of these variables that is exported, with its value; they must not differ."""
        both = [(name, self.exported[name]) for name in names if name in self.exported]
        if len({text for _, text in both}) > 1:
            self.wrong.append(f"{' and '.join(f'{name}={text}' for name, text in both)} differ: unset one of them")
        return both[0] if both else None

    def _system(self) -> None:
        exported = {name: plain_name(self.exported[name]) for name in SYSTEM_VARIABLES if name in self.exported}
        if len(set(exported.values())) > 1:
            both = " and ".join(f"{name}={self.exported[name]}" for name in exported)
            raise ConfigError(f"{both} name different systems: unset one of them, or give SYSTEM")
        if not exported:
            return
        name, plain = next(iter(exported.items()))
        text = self.exported[name]
        submission, given = Submission.from_name(plain), self.arguments.system
        self.packed = submission is not None and submission.packed
        if given is not None:
            if given != plain:
                self.variables.pass_over(name, text, f"the argument {given} names the system")
            else:
                self.variables.honour(name, text, "the system")
            return
        self.submission = submission
        try:
            self.arguments.system = plain if submission is None else shipped_system(submission)
            load_system(self.arguments.system)
        except ConfigError as error:
            raise ConfigError(f"{name}={text}: {error}") from error
        self.variables.honour(name, text, f"the system {self.arguments.system}")

    def _runs(self) -> None:
        arguments, variables = self.arguments, self.variables
        exported = self._synonym(RUNS_VARIABLES)
        runs = self._read(*exported, whole(1)) if exported else None
        if exported and runs and "runs" not in arguments:
            if runs == "1":
                variables.honour(*exported, "one run")
            elif arguments.resume != "never":
                variables.pass_over(*exported, "`bertbench train` resumes one run")
            else:
                self.wrong.append(
                    f"{'='.join(exported)}: `bertbench train` makes one run; use `bertbench launch`, or unset it"
                )
        elif exported and runs:
            if arguments.runs is not None:
                variables.pass_over(*exported, f"--runs {arguments.runs} is given")
            else:
                variables.honour(*exported, f"--runs {runs}")
                variables.runs_from, arguments.runs = "=".join(exported), int(runs)
        if "runs" in arguments:
            arguments.runs = arguments.runs or 1
            if arguments.runs > 1 and self.ranks is not None and self.ranks.size > 1:
                self.wrong.append(
                    f"{self._runs_from()}: torchrun and srun start the ranks of one run; start them once for each run, "
                    "or set it to 1"
                )

    def _seed(self) -> None:
        arguments, variables = self.arguments, self.variables
        if "SEED" not in self.exported:
            return
        text = self.exported["SEED"]
        seed = self._read("SEED", text, whole(0))
        several = "runs" in arguments and arguments.runs > 1
        if arguments.seed is not None:
            variables.pass_over("SEED", text, f"--seed {arguments.seed} is given")
        elif several:
            self.wrong.append(
                f"SEED={text} with {self._runs_from()} would make the same run several times; unset one of them"
            )
        elif seed is not None:
            variables.honour("SEED", text, f"--seed {seed}")
            variables.words += ["--seed", seed]
            arguments.seed = int(seed)

    def _runs_from(self) -> str:
        """Return what asks for the number of runs, as a user typed it."""
        named = self.variables.runs_from
        return f"{named} {self.arguments.runs}" if named == "--runs" else named

    def _setting(self, name: str, setting: Setting) -> None:
        if name not in self.exported:
            return
        text = self.exported[name]
        if name == "EVALDIR" and self.place == "kubernetes":
            self.wrong.append(
                f"EVALDIR={text}: no pod sees a folder of this machine; unset it, put the samples into the volume of "
                "DATA_CLAIM, and give --set data.eval_path=FOLDER"
            )
            return
        value = self._read(name, text, setting.read)
        if value is None:
            return
        beaten = self.given & ({*BATCHES} if setting.name in BATCHES else {setting.name})
        if beaten:
            self.variables.pass_over(name, text, f"--set {min(beaten)} is given")
            return
        meaning = ""
        if name == "BATCHSIZE" and self.packed:
            value = str(int(value) * SAMPLES_OF_A_ROW)
            meaning = f": packed rows, of {SAMPLES_OF_A_ROW} samples each"
        self.overrides[name] = Override(f"{setting.name}={value}", f"{name}={text}")
        self.variables.honour(name, text, f"--set {setting.name}={value}{meaning}")

    def _first_evaluation(self) -> None:
        name = "EVAL_ITER_START_SAMPLES"
        first, every = self.exported.get(name), self.exported.get("EVAL_ITER_SAMPLES")
        if first is None:
            return
        if first == every:
            self.variables.honour(name, first, "the first evaluation is after one interval")
        else:
            self.wrong.append(
                f"{name}={first}: the first evaluation is after one interval, EVAL_ITER_SAMPLES"
                f"{f'={every}' if every else ''}; export the same number, or unset it"
            )

    def _walltime(self) -> None:
        if "WALLTIME" not in self.exported:
            return
        text = self.exported["WALLTIME"]
        try:
            minutes = minutes_of(text)
        except ValueError as error:
            self.wrong.append(f"WALLTIME={text}: expected {error}")
            return
        if self.place in ("slurm", "kubernetes"):
            self.variables.walltime = text
            self.variables.honour("WALLTIME", text, f"the job ends after {minutes} minutes")
        else:
            self.variables.pass_over("WALLTIME", text, "only --on slurm and kubernetes end a job; sbatch takes --time")

    def _image(self) -> None:
        if "CONT" not in self.exported:
            return
        text = self.exported["CONT"]
        if self.place == "local":
            self.variables.pass_over("CONT", text, "these ranks start in no container of their own; see --on")
        else:
            how = ", by pyxis unless CONTAINER says otherwise" if self.place == "slurm" else ""
            self.variables.honour("CONT", text, f"the image{how}")

    def _read(self, name: str, text: str, read: Callable[[str], str]) -> str | None:
        """Return a variable's value, or note that it is malformed."""
        try:
            return read(text)
        except ValueError as error:
            self.wrong.append(f"{name}={text}: expected {error}")
            return None

    def _check_shape(self, system: System) -> None:
        for name, setting in SHAPE.items():
            if name not in self.exported:
                continue
            text = self.exported[name]
            number = self._read(name, text, whole(1))
            actual = _value(system, setting)
            if number is None:
                continue
            if setting in self.given:
                self.variables.pass_over(name, text, f"--set {setting} is given")
            elif int(number) == actual:
                self.variables.honour(name, text, f"as {system.name} has")
            else:
                what = "nodes" if name == "DGXNNODES" else "ranks on each node"
                self.wrong.append(
                    f"{name}={text}: {system.name} has {actual} {what}; unset it, name another system (`bertbench "
                    f"config list`), or adapt this one with `bertbench config scale {system.argument} --gpus N "
                    "--out FILE.json`"
                )

    def _check_submission(self, system: System) -> None:
        """Compare the numbers in a submission's name with the system that it stands for."""
        if self.submission is None:
            return
        named = self.submission
        resized = self.given & {*BATCHES, *SHAPE.values()}
        per_gpu = named.micro_batch * named.steps * (SAMPLES_OF_A_ROW if named.packed else 1)
        name = f"DGXSYSTEM={named.name} "
        if not resized and per_gpu != system.local_batch:
            self.wrong.append(
                f"{name}names {per_gpu} samples per GPU and step, the run has {system.local_batch}; give SYSTEM by "
                f"name ({system.name}), or export BATCHSIZE as the name has it"
            )
        steps = system.data.gradient_accumulation_steps
        if "data.gradient_accumulation_steps" not in self.given and named.steps != steps:
            self.wrong.append(
                f"{name}names {named.steps} gradient steps, the run has {steps}; give SYSTEM by name ({system.name}), "
                "or export GRADIENT_STEPS as the name has it"
            )
        if "clip.mode" not in self.given and named.clips_after and system.clip.mode != "after":
            self.wrong.append(
                f"{name}names clipping after the all-reduce, {system.name} clips {system.clip.mode} it; give --set "
                "clip.mode=after, or SYSTEM by name"
            )

    def _check_effects(self, system: System) -> None:
        """Note each variable whose value isn't the run's: hyper-parameters scaled to another batch."""
        for override in self.overrides.values():
            setting, _, value = override.partition("=")
            actual = _value(system, setting)
            if str(actual) == value or (isinstance(actual, float | int) and float(actual) == float(value)):
                continue
            self.wrong.append(
                f"{override.origin}: {system.name} scales it to its batch (scale_from_batch), to {actual}; unset it, "
                f"and give --set scale_from_batch=null --set {override}"
            )
        if "BATCHSIZE" in self.overrides and system.layout.data != system.world_size:
            self.wrong.append(
                f"{self.overrides['BATCHSIZE'].origin} counts samples per GPU, and {system.name} splits the model over "
                "GPUs (parallel); unset it, and give --set data.global_batch_size=N"
            )


def plain_name(text: str) -> str:
    """Return the system that the name of a published configuration file gives: config_NAME.sh is NAME's."""
    if not text.endswith(".sh") and not text.startswith("config_"):
        return text
    return Path(text).name.removeprefix("config_").removesuffix(".sh")


def _value(system: System, setting: str) -> object:
    return reduce(getattr, setting.split("."), system)


def differing(values_of_ranks: list[dict[str, str]]) -> Iterator[str]:
    """Yield which variables differ between rank 0 and another rank."""
    first = values_of_ranks[0]
    for name in sorted({name for values in values_of_ranks for name in values}):
        for rank, values in enumerate(values_of_ranks):
            if values.get(name) != first.get(name):
                here, there = first.get(name, "not set"), values.get(name, "not set")
                yield f"{name} is {here} on rank 0 and {there} on rank {rank}"
                break
