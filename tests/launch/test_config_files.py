"""The files of benchmarks/bert/config_*.sh, as a shell sources them: each says what its system file says."""

import argparse
import subprocess
from pathlib import Path

import pytest

from bertbench.common.errors import ConfigError
from bertbench.common.paths import REPOSITORY
from bertbench.config import load_system, system_names
from bertbench.launch.honour import honour
from bertbench.launch.run_options import TRAIN

FOLDER = REPOSITORY / "benchmarks" / "bert"
FILES = {
    "dgxa100_n1": "config_DGXA100_1x8x56x1.sh",  # 448 samples of 8 GPUs
    "dgxa100_n1_open": "config_DGXA100_1x8x56x1_open.sh",
    "dgxa100_n2": "config_DGXA100_2x8x28x1.sh",
    "dgxa100_n4": "config_DGXA100_4x8x48x1.sh",
    "dgxa100_n8": "config_DGXA100_8x8x48x1.sh",
    "dgxa100_n8_open": "config_DGXA100_8x8x48x1_open.sh",
    "dgxa100_n16": "config_DGXA100_16x8x24x1.sh",
    "dgxa100_n32": "config_DGXA100_32x8x18x1.sh",
    "dgxa100_n64": "config_DGXA100_64x8x9x1.sh",
    "dgxa100_n128": "config_DGXA100_128x8x4x1.sh",
    "dgxa100_n128_open": "config_DGXA100_128x8x16x1_open.sh",
    "dgxa100_n171_open": "config_DGXA100_171x8x12x1_open.sh",
    "dgxh200_n1": "config_DGXH200_1x8x96x1.sh",
}
EXPORTED = {
    "DGXSYSTEM", "DGXNNODES", "DGXNGPU", "BATCHSIZE", "LR", "OPT_LAMB_BETA_1", "OPT_LAMB_BETA_2", "WEIGHT_DECAY_RATE",
    "MAX_STEPS", "WARMUP_STEPS", "START_WARMUP_STEP", "WALLTIME_MINUTES", "WALLTIME",
}  # fmt: skip
"""What every file exports. A variable that only some files export would keep its value when another is sourced."""


def sourced(*files: Path, shell: str = "sh", **exported: str) -> dict[str, str]:
    """Return what a shell without other variables exports after these files."""
    lines = [*(f". '{file}'" for file in files), "exec env"]
    done = subprocess.run(
        [shell, "-c", "\n".join(lines)],
        env={"PATH": "/usr/bin:/bin", **exported},
        capture_output=True,
        text=True,
        check=True,
    )
    variables = dict(line.split("=", 1) for line in done.stdout.splitlines())
    return {name: value for name, value in variables.items() if name not in ("PATH", "PWD", "SHLVL", "_")}


def honoured(variables: dict[str, str]) -> argparse.Namespace:
    arguments = argparse.Namespace(
        system=None, runs=None, seed=None, overrides=[], on="slurm", dry_run=True, close=None, reads=TRAIN
    )
    honour(arguments, variables)
    return arguments


def test_every_dgx_system_has_a_file_and_there_are_no_others() -> None:
    assert {name for name in system_names() if name.startswith("dgx")} == {*FILES}
    assert {path.name for path in FOLDER.glob("config*")} == {*FILES.values()}


@pytest.mark.parametrize(
    ("system", "file", "shell"),
    [*((system, file, "sh") for system, file in FILES.items()), ("dgxa100_n1", FILES["dgxa100_n1"], "bash")],
)
def test_a_sourced_file_is_its_system_without_a_change(system: str, file: str, shell: str) -> None:
    exported = sourced(FOLDER / file, shell=shell)
    assert set(exported) == EXPORTED
    assert file == f"config_{exported['DGXSYSTEM']}.sh"
    arguments = honoured(exported)
    assert (arguments.system, arguments.overrides) == (system, [])  # another value would be an override, or an error
    minutes = load_system(system).launch.walltime_minutes
    assert (int(exported["WALLTIME_MINUTES"]), int(exported["WALLTIME"])) == (minutes, minutes + 5)


def test_the_time_limit_counts_the_runs() -> None:
    file = FOLDER / FILES["dgxa100_n1"]
    alone, ten = sourced(file), sourced(file, NEXP="10")
    assert (alone["WALLTIME"], ten["WALLTIME"]) == ("50", "455")  # 45 minutes a run
    assert honoured(ten).variables.walltime == "455"
    late = honoured({**alone, "NEXP": "10"}).variables
    assert late.walltime == "50"
    (warning,) = [line for line in late.lines if line.startswith("warning: ")]
    assert warning.startswith("warning: WALLTIME=50 is less than NEXP=10 may need with WALLTIME_MINUTES=45; export")


def changed(changes: str) -> dict[str, str]:
    """Return the variables of the file for dgxa100_n8 with these changes."""
    return sourced(FOLDER / FILES["dgxa100_n8"]) | dict(change.split("=", 1) for change in changes.split())


CHANGED = {
    "LR=1e-3": ["optimizer.learning_rate=0.001"],
    "MAX_STEPS=1200 WARMUP_STEPS=10": ["schedule.max_steps=1200", "schedule.warmup_steps=10"],
    "GRADIENT_STEPS=2 DGXSYSTEM=DGXA100_8x8x24x2": ["data.gradient_accumulation_steps=2"],
    "BATCHSIZE=24 DGXSYSTEM=DGXA100_8x8x24x1": ["data.local_batch=24"],
}


@pytest.mark.parametrize(("changes", "overrides"), CHANGED.items())
def test_a_changed_value_is_honoured_if_it_is_unambiguous(changes: str, overrides: list[str]) -> None:
    assert honoured(changed(changes)).overrides == overrides


REFUSED = {
    "BATCHSIZE=24": "export DGXSYSTEM=DGXA100_8x8x24x1",
    "GRADIENT_STEPS=2": "export DGXSYSTEM=DGXA100_8x8x24x2",
    "DGXNNODES=4": "DGXNNODES=4",
    "WALLTIME_MINUTES=x": "WALLTIME_MINUTES=x",
}


@pytest.mark.parametrize(("changes", "expected"), REFUSED.items())
def test_a_changed_value_that_contradicts_the_file_is_refused(changes: str, expected: str) -> None:
    with pytest.raises(ConfigError) as refused:
        honoured(changed(changes))
    assert expected in str(refused.value)
