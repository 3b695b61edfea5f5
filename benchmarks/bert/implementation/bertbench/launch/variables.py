"""The table of the variables that published submissions export: what each stands for here, how its value is read.

`honour.py` goes through the table. run.sub, run_with_docker.sh and run_and_time.sh repeat the names, because they run
where bertbench may not be installed; docs/running.md has the users' table. This file imports neither torch nor
pydantic, because the commands' help needs it.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

Reader = Callable[[str], str]
"""Return a variable's value as --set or an option takes it. Raises ValueError with what to say about another text."""

UNLIMITED = "UNLIMITED"
SPARE_MINUTES = 5
"""Minutes of a job besides those of its runs, for its own start and end."""
PACKED_OPTION = "--packed_samples"
"""The option in EXTRA_PARAMS by which BATCHSIZE counts packed rows. PACKING_FACTOR doesn't say it: 38 published files
of packed runs set that to 1."""
SAMPLES_OF_A_ROW = 2  # published runs count a packed row as two samples, whatever it holds
BATCH_SETTINGS = ("data.local_batch", "data.global_batch_size")
SHAPE_SETTINGS = ("hardware.number_of_nodes", "launch.ranks_per_node")


def _whole_number(least: int) -> Reader:
    def read(text: str) -> str:
        if not re.fullmatch(r"[0-9]+", text) or int(text) < least:
            raise ValueError(f"expected a whole number of at least {least}")
        return str(int(text))

    return read


def _signed(text: str) -> str:
    if not re.fullmatch(r"[-+]?[0-9]+", text):
        raise ValueError("expected a whole number")
    return str(int(text))


def _number(text: str) -> float:
    """Return a number; NaN for other text."""
    if re.fullmatch(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?", text):
        return float(text)
    return math.nan


def _number_that(holds: Callable[[float], bool], expected: str) -> Reader:
    def read(text: str) -> str:
        number = _number(text)
        if not holds(number):
            raise ValueError(f"expected a number {expected}")
        return repr(number)

    return read


_positive = _number_that(lambda number: 0 < number < math.inf, "above 0")
_not_negative = _number_that(lambda number: 0 <= number < math.inf, "of at least 0")
_fraction = _number_that(lambda number: 0 <= number <= 1, "from 0 to 1")


def _optimizer(text: str) -> str:
    """Return the optimizer that a name such as FusedAdam or DistributedFusedLAMB contains."""
    for name in ("adam", "lamb"):
        if name in text.lower():
            return name
    raise ValueError("expected a name that contains adam or lamb")


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)  # without quotes, a number would not be text


def _folder(text: str) -> str:
    if not Path(text).is_dir():
        raise ValueError("expected a folder on this machine")
    return str(Path(text).absolute())


def configuration_name(text: str) -> str:
    """Return the name of a configuration: for config_NAME.sh, a published configuration file, it is NAME."""
    if text.endswith(".json") or not (text.endswith(".sh") or text.startswith("config_")):
        return text
    return Path(text).name.removeprefix("config_").removesuffix(".sh")


def minutes_of(text: str) -> float:
    """Return a time limit in minutes, rounded up, as sbatch --time takes it: M, M:S, H:M:S, D-H, D-H:M or D-H:M:S.

    It is infinite for UNLIMITED and INFINITE. Raises ValueError that says what is expected.
    """
    if text.upper() in (UNLIMITED, "INFINITE"):
        return math.inf
    parts = re.fullmatch(r"(?:(?P<days>\d+)-)?(?P<first>\d+)(?::(?P<second>\d+))?(?::(?P<third>\d+))?", text)
    if parts is None:
        raise ValueError("expected minutes, or a time as sbatch takes it, such as 90 or 1:30:00")
    first, second, third = (int(parts[name] or 0) for name in ("first", "second", "third"))
    if parts["days"] is not None:
        seconds = int(parts["days"]) * 86400 + first * 3600 + second * 60 + third
    elif parts["third"] is not None:
        seconds = first * 3600 + second * 60 + third
    else:
        seconds = first * 60 + second
    if not seconds:
        raise ValueError("expected a time above 0")
    return math.ceil(seconds / 60)


def _minutes(text: str) -> str:
    return str(minutes_of(text))


def _whole_minutes(text: str) -> str:
    return str(math.inf) if text.upper() == UNLIMITED else _whole_number(1)(text)


def _refused(why: str, unless_zero: bool = False) -> Reader:
    def read(text: str) -> str:
        if unless_zero and _number(text) == 0:
            return text
        raise ValueError(why)

    return read


class Row(NamedTuple):
    """What a variable stands for, and how its value is read."""

    stands_for: str = ""
    """A setting, or a thing of the run; empty if the run has nothing like it."""

    read: Reader = str
    otherwise: str = ""
    """What to say if the run has another value of the setting; empty if the variable changes it."""

    instead: str = ""
    """What says the same, for a variable that isn't read."""

    published_default: str | None = None
    """The value that published scripts give to the variable if a configuration file doesn't export it."""


_OTHER_SHAPE = (
    "unset it, name another system (`bertbench config list`), or write one with `bertbench config init --from "
    "{argument} --nodes N --gpus N`"
)
_OTHER_START = (
    "the first evaluation comes after one interval, EVAL_ITER_SAMPLES={actual}; export the same number, or unset it"
)
_OTHER_VALUE = (
    "{system} has {name} {actual}; give --set {name}={value} if the run should have it, and unset the variable"
)
_CHECKPOINTS = (
    "published submissions read starting weights from it or write checkpoints to it; unset it: --weights PATH names "
    "starting weights, and snapshots are written to the run's folder in LOGDIR"
)
_WEIGHTS = (
    "it names a folder of published weights; unset it: --weights PATH names a file of `bertbench checkpoint import`"
)
_UNIT_TESTS = "it asks for the unit tests of a published submission, not for a run; unset it"
_OPTIONS = "its options are settings here; `bertbench config show SYSTEM` prints them, --set changes one"
_DATASET = "DATADIR names the folder of the data, data.path the dataset in it"

SYSTEM = dict.fromkeys(("DGXSYSTEM", "CONFIG_NAME", "PGSYSTEM"), Row("the system", configuration_name))
HYPER_PARAMETERS = {
    "BATCHSIZE": Row("data.local_batch", _whole_number(1)),
    "GRADIENT_STEPS": Row("data.gradient_accumulation_steps", _whole_number(1)),
    "LR": Row("optimizer.learning_rate", _positive),
    "OPT_LAMB_BETA_1": Row("optimizer.beta1", _fraction, published_default="0.9"),
    "OPT_LAMB_BETA_2": Row("optimizer.beta2", _fraction, published_default="0.999"),
    "WEIGHT_DECAY_RATE": Row("optimizer.weight_decay", _fraction, published_default="0.01"),
    "MAX_STEPS": Row("schedule.max_steps", _whole_number(1)),
    "WARMUP_STEPS": Row("schedule.warmup_steps", _whole_number(0), published_default="0"),
    "START_WARMUP_STEP": Row("schedule.start_warmup_step", _signed, published_default="0"),
    "MAX_SAMPLES_TERMINATION": Row("evaluation.max_samples", _whole_number(1)),
    "EVAL_ITER_SAMPLES": Row("evaluation.interval_samples", _whole_number(1)),
    "TARGET_MLM_ACCURACY": Row("evaluation.target", _fraction),
}
"""What decides how a run converges. A configuration file that exports one of them is for a run of its own."""
SETTINGS = HYPER_PARAMETERS | {
    "EVALDIR": Row("data.eval_path", _folder),
    "MLPERF_SUBMISSION_ORG": Row("hardware.submitter", _text),
    "MLPERF_SUBMISSION_PLATFORM": Row("hardware.system_name", _text),
}
NODES = dict.fromkeys(
    ("DGXNNODES", "PGNNODES"),
    Row(SHAPE_SETTINGS[0], _whole_number(1), f"{{system}} has {{actual}} nodes; {_OTHER_SHAPE}"),
)
GPUS = dict.fromkeys(
    ("DGXNGPU", "PGNGPU"),
    Row(SHAPE_SETTINGS[1], _whole_number(1), f"{{system}} has {{actual}} ranks on each node; {_OTHER_SHAPE}"),
)
MUST_AGREE = {
    **NODES,
    **GPUS,
    "EVAL_ITER_START_SAMPLES": Row("evaluation.interval_samples", _whole_number(1), _OTHER_START),
    "OPTIMIZER": Row("optimizer.name", _optimizer, _OTHER_VALUE),
    "EPSILON": Row("optimizer.epsilon", _positive, _OTHER_VALUE),
    "END_LR": Row("schedule.end_learning_rate", _not_negative, _OTHER_VALUE),
    "START_STEPS": Row("schedule.start_warmup_step", _signed, _OTHER_VALUE),
    "GRAD_STEPS": Row("data.gradient_accumulation_steps", _whole_number(1), _OTHER_VALUE),
    "EVAL_ITER": Row("evaluation.interval_samples", _whole_number(1), _OTHER_VALUE),
    "EVAL_START": Row("evaluation.interval_samples", _whole_number(1), _OTHER_VALUE),
}
"""Variables that change no setting, but a run doesn't start with another value than one of them asks for. The last
seven are hyper-parameters as a few submitters name them; other programs use these names, too."""
FOLDERS = {"DATADIR": Row("the folder of data"), "LOGDIR": Row("the folder of results")}
"""common/paths.py finds these."""
NOT_READ = {
    "DATADIR_PHASE2": Row(instead=_DATASET),
    "DATADIR_PHASE2_PACKED": Row(instead=_DATASET),
    "INIT_LOSS_SCALE": Row(instead="--set precision.initial_loss_scale=N sets it where gradients pass through fp16"),
    "EXTRA_PARAMS": Row(instead=_OPTIONS),
    "PACKING_FACTOR": Row(instead=f"{PACKED_OPTION} in EXTRA_PARAMS says that BATCHSIZE counts packed rows"),
    "MLPERF_SUBMITTER": Row(instead="MLPERF_SUBMISSION_ORG names the submitter in the logs"),
    "MLPERF_SYSTEM_NAME": Row(instead="MLPERF_SUBMISSION_PLATFORM names the system in the logs"),
    "MLPERF_STATUS": Row(instead="--set hardware.status=STATUS sets it"),
    "MLPERF_DIVISION": Row(instead="the system file names its division"),
    "MLPERF_CLUSTER_NAME": Row(instead="logs don't contain it"),
    "MLPERF_RULESET": Row(instead="`bertbench judge --ruleset R` chooses the rules"),
}
TABLE = {
    **SYSTEM,
    "NEXP": Row("--runs", _whole_number(1)),
    "SEED": Row("--seed", _whole_number(0)),
    "WALLTIME": Row("the job's time limit", _minutes),
    "WALLTIME_MINUTES": Row("a run's time limit", _whole_minutes),
    **SETTINGS,
    **MUST_AGREE,
    "CONT": Row("the image"),
    **FOLDERS,
    "CHECKPOINTDIR": Row(read=_refused(_CHECKPOINTS)),
    "CHECKPOINTDIR_PHASE1": Row(read=_refused(_WEIGHTS)),
    "UNITTEST": Row(read=_refused(_UNIT_TESTS, unless_zero=True)),
    "WARMUP_PROPORTION": Row(read=_refused("unset it, and export WARMUP_STEPS, the number of steps", unless_zero=True)),
    **NOT_READ,
}
"""All variables that are honoured, refused, or named because they have no effect."""


class Exported(NamedTuple):
    """A variable that the user has exported."""

    name: str
    text: str
    """As exported."""
    value: str
    """As its row reads it."""

    def __str__(self) -> str:
        return f"{self.name}={self.text}"


def read_exported(environment: Mapping[str, str]) -> tuple[dict[str, Exported], list[str]]:
    """Return the exported variables of the table, in its order, and what is wrong with the others, a line for each."""
    exported = {}
    problems = []
    for name, row in TABLE.items():
        text = environment.get(name, "").strip()
        if not text:
            continue
        try:
            exported[name] = Exported(name, text, row.read(text))
        except ValueError as error:
            problems.append(f"{name}={text}: {error}")
    return exported, problems


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
        self.values[exported.name] = exported.text
        self.lines.append(f"{exported}: {effect}")

    def pass_over(self, exported: Exported, why: str) -> None:
        """Record why a variable has no effect."""
        self.lines.append(f"{exported} is not used: {why}")

    def runs_as_typed(self, runs: int) -> str:
        """Return what asks for this number of runs, as a user typed it."""
        return f"{self.runs_from} {runs}" if self.runs_from == "--runs" else self.runs_from

    def agree(self, exported: list[Exported], system: str) -> None:
        """Record variables with the values that the system has, in one line."""
        self.values |= {variable.name: variable.text for variable in exported}
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
