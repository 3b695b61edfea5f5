"""List the variables that published submissions export: what each sets here, how its value is read, what became of it.

`honour.py` acts on them, in the order of its `_Honouring.honour_all`. run.sub and run_with_docker.sh repeat the
names; docs/running.md has the users' table. This file imports neither torch nor pydantic.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

SYSTEM_VARIABLES = ("DGXSYSTEM", "CONFIG_NAME", "PGSYSTEM")
RUNS_VARIABLES = ("NEXP", "RUNS")
FOLDERS = {"DATADIR": "data", "LOGDIR": "results"}
"""What is in these folders; common/paths.py finds them."""
REFUSED = {
    "CHECKPOINTDIR": "published submissions read starting weights from it or write checkpoints to it; unset it: "
    "--weights PATH names starting weights, and snapshots are written to the run's folder in LOGDIR",
    "CHECKPOINTDIR_PHASE1": "it names a folder of published weights; unset it: --weights PATH names a "
    "file of `bertbench checkpoint import`",
}
REFUSED_UNLESS_ZERO = {
    "UNITTEST": "it asks for the unit tests of a published submission, not for a run; unset it",
    "WARMUP_PROPORTION": "unset it, and export WARMUP_STEPS, the number of steps",
}
NOT_READ = {
    "DATADIR_PHASE2": "DATADIR names the folder of the data, data.path the dataset in it",
    "DATADIR_PHASE2_PACKED": "DATADIR names the folder of the data, data.path the dataset in it",
    "INIT_LOSS_SCALE": "--set precision.initial_loss_scale=N sets it where gradients pass through fp16",
    "EXTRA_PARAMS": "its options are settings here; `bertbench config show SYSTEM` prints them, --set changes one",
    "PACKING_FACTOR": "--packed_samples in EXTRA_PARAMS says that BATCHSIZE counts packed rows",
    "MLPERF_SUBMITTER": "MLPERF_SUBMISSION_ORG names the submitter in the logs",
    "MLPERF_SYSTEM_NAME": "MLPERF_SUBMISSION_PLATFORM names the system in the logs",
    "MLPERF_STATUS": "--set hardware.status=STATUS sets it",
    "MLPERF_DIVISION": "the system file names its division",
    "MLPERF_CLUSTER_NAME": "logs don't contain it",
    "MLPERF_RULESET": "`bertbench judge --ruleset R` chooses the rules",
}
PACKED_OPTION = "--packed_samples"
"""The option in EXTRA_PARAMS by which BATCHSIZE counts packed rows. PACKING_FACTOR doesn't say it: 38 published files
of packed runs set that to 1."""
SAMPLES_OF_A_ROW = 2  # published runs count a packed row as two samples, whatever it holds


def whole_number(least: int) -> Callable[[str], str]:
    """Return a reader of whole numbers of at least `least`; for other text, it raises ValueError that says so."""

    def read(text: str) -> str:
        if not re.fullmatch(r"[0-9]+", text) or int(text) < least:
            raise ValueError(f"a whole number of at least {least}")
        return str(int(text))

    return read


def _signed(text: str) -> str:
    if not re.fullmatch(r"[-+]?[0-9]+", text):
        raise ValueError("a whole number")
    return str(int(text))


def _positive(text: str) -> str:
    number = _number(text)
    if not 0 < number < math.inf:
        raise ValueError("a number above 0")
    return repr(number)


def is_zero(text: str) -> bool:
    """Return whether this is the number 0."""
    return _number(text) == 0


def _number(text: str) -> float:
    """Return a number; NaN for other text."""
    if re.fullmatch(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?", text):
        return float(text)
    return math.nan


def _fraction(text: str) -> str:
    number = _number(text)
    if not 0 <= number <= 1:
        raise ValueError("a number from 0 to 1")
    return repr(number)


def _not_negative(text: str) -> str:
    number = _number(text)
    if not 0 <= number < math.inf:
        raise ValueError("a number of at least 0")
    return repr(number)


def _optimizer(text: str) -> str:
    """Return the optimizer that a name such as FusedAdam or DistributedFusedLAMB contains."""
    for name in ("adam", "lamb"):
        if name in text.lower():
            return name
    raise ValueError("a name that contains adam or lamb")


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)  # without quotes, a number would not be text


def _folder(text: str) -> str:
    if not Path(text).is_dir():
        raise ValueError("a folder on this machine")
    return str(Path(text).absolute())


class VariableSetting(NamedTuple):
    """The setting that a variable changes."""

    name: str
    read: Callable[[str], str]
    """Return the value as --set takes it; raises ValueError that says what is expected."""

    published_default: str | None = None
    """The value that published scripts give to the variable if a configuration file doesn't export it."""


HYPER_PARAMETERS = {
    "BATCHSIZE": VariableSetting("data.local_batch", whole_number(1)),
    "GRADIENT_STEPS": VariableSetting("data.gradient_accumulation_steps", whole_number(1)),
    "LR": VariableSetting("optimizer.learning_rate", _positive),
    "OPT_LAMB_BETA_1": VariableSetting("optimizer.beta1", _fraction, "0.9"),
    "OPT_LAMB_BETA_2": VariableSetting("optimizer.beta2", _fraction, "0.999"),
    "WEIGHT_DECAY_RATE": VariableSetting("optimizer.weight_decay", _fraction, "0.01"),
    "MAX_STEPS": VariableSetting("schedule.max_steps", whole_number(1)),
    "WARMUP_STEPS": VariableSetting("schedule.warmup_steps", whole_number(0), "0"),
    "START_WARMUP_STEP": VariableSetting("schedule.start_warmup_step", _signed, "0"),
    "MAX_SAMPLES_TERMINATION": VariableSetting("evaluation.max_samples", whole_number(1)),
    "EVAL_ITER_SAMPLES": VariableSetting("evaluation.interval_samples", whole_number(1)),
    "TARGET_MLM_ACCURACY": VariableSetting("evaluation.target", _fraction),
}
"""What decides how a run converges. A configuration file that exports one of them is for a run of its own."""
SETTINGS = HYPER_PARAMETERS | {
    "EVALDIR": VariableSetting("data.eval_path", _folder),
    "MLPERF_SUBMISSION_ORG": VariableSetting("hardware.submitter", _text),
    "MLPERF_SUBMISSION_PLATFORM": VariableSetting("hardware.system_name", _text),
}
NODES_VARIABLES = ("DGXNNODES", "PGNNODES")
GPUS_VARIABLES = ("DGXNGPU", "PGNGPU")


class MustAgree(NamedTuple):
    """The setting whose value a variable must have."""

    name: str
    read: Callable[[str], str]
    """As that of VariableSetting."""

    otherwise: str = (
        "{system} has {name} {actual}; give --set {name}={value} if the run should have it, and unset the variable"
    )
    """What to say about another value."""


_OTHER_SHAPE = (
    "unset it, name another system (`bertbench config list`), or write one with `bertbench config init --from "
    "{argument} --nodes N --gpus N`"
)
_NODES = MustAgree("hardware.number_of_nodes", whole_number(1), f"{{system}} has {{actual}} nodes; {_OTHER_SHAPE}")
_GPUS = MustAgree(
    "launch.ranks_per_node", whole_number(1), f"{{system}} has {{actual}} ranks on each node; {_OTHER_SHAPE}"
)
MUST_AGREE = {
    **dict.fromkeys(NODES_VARIABLES, _NODES),
    **dict.fromkeys(GPUS_VARIABLES, _GPUS),
    "EVAL_ITER_START_SAMPLES": MustAgree(
        "evaluation.interval_samples",
        whole_number(1),
        "the first evaluation comes after one interval, EVAL_ITER_SAMPLES={actual}; export the same number, or unset "
        "it",
    ),
    "OPTIMIZER": MustAgree("optimizer.name", _optimizer),
    "EPSILON": MustAgree("optimizer.epsilon", _positive),
    "END_LR": MustAgree("schedule.end_learning_rate", _not_negative),
    "START_STEPS": MustAgree("schedule.start_warmup_step", _signed),
    "GRAD_STEPS": MustAgree("data.gradient_accumulation_steps", whole_number(1)),
    "EVAL_ITER": MustAgree("evaluation.interval_samples", whole_number(1)),
    "EVAL_START": MustAgree("evaluation.interval_samples", whole_number(1)),
}
"""Variables that change no setting, but a run doesn't start with another value than one of them asks for. The last
seven are hyper-parameters as a few submitters name them; other programs use these names, too."""
TIME_LIMITS = ("WALLTIME", "WALLTIME_MINUTES")
"""The limit of the whole job, as sbatch takes it, and that of one of its runs, in minutes."""
BATCH_SETTINGS = ("data.local_batch", "data.global_batch_size")
SHAPE_SETTINGS = (_NODES.name, _GPUS.name)
VARIABLES = (
    *SYSTEM_VARIABLES, *RUNS_VARIABLES, "SEED", *TIME_LIMITS, *SETTINGS, *MUST_AGREE, "CONT", *FOLDERS, *REFUSED,
    *REFUSED_UNLESS_ZERO, *NOT_READ,
)  # fmt: skip
"""All variables that are honoured, refused, or named because they have no effect."""


class Exported(NamedTuple):
    """A variable that the user has exported."""

    name: str
    value: str

    def __str__(self) -> str:
        return f"{self.name}={self.value}"


class ExportedVariables:
    """The variables of VARIABLES that are exported, and the problems that were found in them so far."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.problems: list[str] = []
        self._exported: dict[str, Exported] = {}
        for name in VARIABLES:
            value = environment.get(name, "").strip()
            if value:
                self._exported[name] = Exported(name, value)

    def __getitem__(self, name: str) -> Exported:
        return self._exported[name]

    def get(self, name: str) -> Exported | None:
        """Return a variable; None if it isn't exported."""
        return self._exported.get(name)

    def among(self, names: Iterable[str]) -> list[Exported]:
        """Return those of the names that are exported."""
        return [self._exported[name] for name in names if name in self._exported]

    def read(self, exported: Exported, read: Callable[[str], str]) -> str | None:
        """Return a variable's value; None if it is malformed, which is recorded as a problem."""
        try:
            return read(exported.value)
        except ValueError as error:
            self.problems.append(f"{exported}: expected {error}")
            return None


@dataclass
class Variables:
    """What became of the variables."""

    values: dict[str, str] = field(default_factory=dict)
    """The honoured variables, as they were exported; a run records them."""

    lines: list[str] = field(default_factory=list)
    """What became of each, for the user."""

    walltime: str | None = None
    """WALLTIME as sbatch takes it: the limit of the whole job."""

    runs_from: str = "--runs"
    """What gave the number of runs."""

    def honour(self, exported: Exported, effect: str) -> None:
        """Record that a variable has this effect."""
        self.values[exported.name] = exported.value
        self.lines.append(f"{exported}: {effect}")

    def pass_over(self, exported: Exported, why: str) -> None:
        """Record why a variable has no effect."""
        self.lines.append(f"{exported} is not used: {why}")

    def runs_as_typed(self, runs: int) -> str:
        """Return what asks for this number of runs, as a user typed it."""
        return f"{self.runs_from} {runs}" if self.runs_from == "--runs" else self.runs_from

    def agree(self, exported: list[Exported], system: str) -> None:
        """Record variables with the values that the system has, in one line."""
        for variable in exported:
            self.values[variable.name] = variable.value
        if exported:
            self.lines.append(f"{', '.join(variable.name for variable in exported)}: as {system} has")


def differing(values_of_ranks: list[dict[str, str]]) -> Iterator[str]:
    """Yield a line for each variable that differs between rank 0 and another rank; folders may differ between nodes."""
    first = values_of_ranks[0]
    names = {name for values in values_of_ranks for name in values} - FOLDERS.keys()
    for name in sorted(names):
        on_first = first.get(name, "not set")
        for rank, values in enumerate(values_of_ranks):
            on_rank = values.get(name, "not set")
            if on_rank != on_first:
                yield f"{name} is {on_first} on rank 0 and {on_rank} on rank {rank}"
                break
