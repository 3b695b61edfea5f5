"""List the variables that published submissions export, with what each sets here and how its value is read.

launch/variables.py honours them; launch/run.sub and run_with_docker.sh repeat the names. No torch here.
"""

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

SYSTEM_VARIABLES = ("DGXSYSTEM", "CONFIG_NAME")
RUNS_VARIABLES = ("NEXP", "RUNS")
PLACES = {"DATADIR": "data", "LOGDIR": "results"}
"""What is in these folders; common/paths.py finds them."""
REFUSED = {
    "CHECKPOINTDIR": "published submissions read starting weights from it or write checkpoints to it; unset it: "
    "--weights PATH names starting weights, and snapshots lie in LOGDIR, in the run's folder",
    "CHECKPOINTDIR_PHASE1": "it names a folder of published weights; unset it: --weights PATH names a "
    "file of `bertbench checkpoint import`",
}
NOT_READ = {
    "DATADIR_PHASE2": "DATADIR names the folder of the data, data.path the dataset in it",
    "DATADIR_PHASE2_PACKED": "DATADIR names the folder of the data, data.path the dataset in it",
    "INIT_LOSS_SCALE": "--set precision.initial_loss_scale=N sets it where gradients pass through fp16",
    "EXTRA_PARAMS": "its options are settings here; `bertbench config show SYSTEM` prints them, --set changes one",
}
SAMPLES_OF_A_ROW = 2  # by which published runs count a packed row, whatever is in it


def whole(least: int) -> Callable[[str], str]:
    """Return what reads a whole number of at least `least`: it raises ValueError that says so for other text."""

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


def _number(text: str) -> float:
    """Return a number; NaN for other text."""
    return float(text) if re.fullmatch(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?", text) else math.nan


def _fraction(text: str) -> str:
    number = _number(text)
    if not 0 <= number <= 1:
        raise ValueError("a number from 0 to 1")
    return repr(number)


def _folder(text: str) -> str:
    if not Path(text).is_dir():
        raise ValueError("a folder on this machine")
    return str(Path(text).absolute())


class Setting(NamedTuple):
    """The setting that a variable changes."""

    name: str
    read: Callable[[str], str]
    """Return the value as --set takes it; raises ValueError that says what is expected."""


SETTINGS = {
    "BATCHSIZE": Setting("data.local_batch", whole(1)),
    "GRADIENT_STEPS": Setting("data.gradient_accumulation_steps", whole(1)),
    "LR": Setting("optimizer.learning_rate", _positive),
    "OPT_LAMB_BETA_1": Setting("optimizer.beta1", _fraction),
    "OPT_LAMB_BETA_2": Setting("optimizer.beta2", _fraction),
    "WEIGHT_DECAY_RATE": Setting("optimizer.weight_decay", _fraction),
    "MAX_STEPS": Setting("schedule.max_steps", whole(1)),
    "WARMUP_STEPS": Setting("schedule.warmup_steps", whole(0)),
    "START_WARMUP_STEP": Setting("schedule.start_warmup_step", _signed),
    "MAX_SAMPLES_TERMINATION": Setting("evaluation.max_samples", whole(1)),
    "EVAL_ITER_SAMPLES": Setting("evaluation.interval_samples", whole(1)),
    "TARGET_MLM_ACCURACY": Setting("evaluation.target", _fraction),
    "EVALDIR": Setting("data.eval_path", _folder),
}
SHAPE = {"DGXNNODES": "hardware.number_of_nodes", "DGXNGPU": "launch.ranks_per_node"}
BATCHES = ("data.local_batch", "data.global_batch_size")
VARIABLES = (
    *SYSTEM_VARIABLES, *RUNS_VARIABLES, "SEED", *SHAPE, "WALLTIME", *SETTINGS, "EVAL_ITER_START_SAMPLES", "CONT",
    *PLACES, *REFUSED, *NOT_READ,
)  # fmt: skip
"""All that is honoured, refused or named."""


def minutes_of(text: str) -> int:
    """Return a time limit in minutes, rounded up, as sbatch --time takes it: M, M:S, H:M:S, D-H, D-H:M or D-H:M:S.

    Raises ValueError that says what is expected.
    """
    found = re.fullmatch(r"(?:(?P<days>\d+)-)?(?P<first>\d+)(?::(?P<second>\d+))?(?::(?P<third>\d+))?", text)
    if found is None:
        raise ValueError("minutes, or a time as sbatch takes it, such as 90 or 1:30:00")
    first, second, third = (int(found[part] or 0) for part in ("first", "second", "third"))
    if found["days"] is not None:
        seconds = int(found["days"]) * 86400 + first * 3600 + second * 60 + third
    elif found["third"] is not None:
        seconds = first * 3600 + second * 60 + third
    else:
        seconds = first * 60 + second
    if not seconds:
        raise ValueError("a time above 0")
    return math.ceil(seconds / 60)
