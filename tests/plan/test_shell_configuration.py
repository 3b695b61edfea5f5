"""Configuration files as published submissions source them, made from system files."""

import argparse
import json
import subprocess
from pathlib import Path

import pytest

from bertbench.common.errors import ConfigError
from bertbench.common.paths import REPOSITORY
from bertbench.config import load_system, system_names
from bertbench.launch.honour import honour
from bertbench.plan.shell_configuration import shell_configuration
from tests.conftest import Answer, Printed, write_json

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
SHIPPED = pytest.mark.parametrize(("system", "file"), FILES.items())


def sourced(*files: Path, shell: str = "sh", **exported: str) -> dict[str, str]:
    """What a shell without other variables exports after these files."""
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


def honoured(variables: dict[str, str], *options: str, on: str = "slurm") -> argparse.Namespace:
    arguments = argparse.Namespace(
        system=None, runs=None, seed=None, overrides=list(options), on=on, dry_run=True, close=None
    )
    honour(arguments, variables)
    return arguments


def test_every_dgx_system_has_a_file_and_there_are_no_others() -> None:
    assert {name for name in system_names() if name.startswith("dgx")} == {*FILES}
    assert {path.name for path in FOLDER.glob("config*")} == {*FILES.values()}


@SHIPPED
def test_the_file_of_a_system_is_current(system: str, file: str) -> None:
    made = shell_configuration(load_system(system))
    assert made.file_name == file
    assert (FOLDER / file).read_text() == made.text, (
        f"run: bertbench config export {system} --shell >benchmarks/bert/{file}"
    )


@SHIPPED
def test_a_sourced_file_chooses_the_system_without_an_argument(system: str, file: str) -> None:
    arguments = honoured(sourced(FOLDER / file))
    assert (arguments.system, arguments.overrides, arguments.runs) == (system, [], 1)


@pytest.mark.parametrize("system", [name for name in FILES if name not in ("dgxa100_n1_open", "dgxa100_n8_open")])
def test_its_values_equal_those_in_the_json(system: str) -> None:
    """Files of systems that scale no setting to another batch."""
    exported = sourced(FOLDER / FILES[system])
    content = {"optimizer": {}, "evaluation": {}}
    own = json.loads((FOLDER / "systems" / f"{system}.json").read_text())
    for base in own["extends"]:
        for section, values in json.loads((FOLDER / "systems" / f"{base}.json").read_text()).items():
            content[section] = {**content.get(section, {}), **values} if isinstance(values, dict) else values
    for section, values in own.items():
        content[section] = {**content.get(section, {}), **values} if isinstance(values, dict) else values
    optimizer, schedule = content["optimizer"], content["schedule"]
    numbers = {
        "LR": optimizer["learning_rate"], "OPT_LAMB_BETA_1": optimizer["beta1"], "OPT_LAMB_BETA_2": optimizer["beta2"],
        "WEIGHT_DECAY_RATE": optimizer["weight_decay"], "MAX_STEPS": schedule["max_steps"],
        "WARMUP_STEPS": schedule.get("warmup_steps", 0), "START_WARMUP_STEP": schedule.get("start_warmup_step", 0),
        "DGXNNODES": own["hardware"]["number_of_nodes"], "DGXNGPU": 8, "GRADIENT_STEPS": 1,
    }  # fmt: skip
    assert {name: float(exported[name]) for name in numbers} == numbers
    assert exported.get("MAX_SAMPLES_TERMINATION") == (
        str(content["evaluation"]["max_samples"]) if "max_samples" in content["evaluation"] else None
    )
    batch = content["data"].get("global_batch_size", content["data"].get("local_batch", 0) * numbers["DGXNNODES"] * 8)
    assert int(exported["BATCHSIZE"]) * numbers["DGXNNODES"] * 8 == batch
    # MLPerf: every floor(0.05 (230.23 GBS + 3,000,000) / 25,000) * 25,000 samples
    assert int(exported["EVAL_ITER_SAMPLES"]) == int(0.05 * (230.23 * batch + 3e6) // 25_000) * 25_000


def test_a_file_clears_the_variables_of_one_that_was_sourced_before() -> None:
    first, second = FOLDER / FILES["dgxa100_n128"], FOLDER / FILES["dgxa100_n8_open"]
    assert "MAX_SAMPLES_TERMINATION" in sourced(first)
    for shell in ("sh", "bash"):
        assert sourced(first, second, shell=shell) == sourced(second)


def test_the_time_limit_counts_the_runs_and_lasts_twice_the_estimate() -> None:
    file = FOLDER / FILES["dgxa100_n1"]
    alone, ten = sourced(file), sourced(file, NEXP="10")
    # the estimate is 17.4 minutes: 2 x 17.4 + 10 is rounded up to 45
    assert (alone["WALLTIME_MINUTES"], alone["WALLTIME"], ten["WALLTIME"]) == ("45", "50", "455")
    assert honoured(ten).variables.walltime == "455"
    late = honoured({**alone, "NEXP": "10"}).variables
    assert late.walltime == "50"
    (warning,) = [line for line in late.lines if line.startswith("warning: ")]
    assert warning.startswith("warning: WALLTIME=50 is less than NEXP=10 may need with WALLTIME_MINUTES=45; export")


CHANGED = {
    "LR=1e-3": ["optimizer.learning_rate=0.001"],
    "MAX_STEPS=1200 WARMUP_STEPS=10": ["schedule.max_steps=1200", "schedule.warmup_steps=10"],
    "GRADIENT_STEPS=2 DGXSYSTEM=DGXA100_8x8x24x2": ["data.gradient_accumulation_steps=2"],
    "BATCHSIZE=24 DGXSYSTEM=DGXA100_8x8x24x1 EVAL_ITER_SAMPLES= EVAL_ITER_START_SAMPLES=": ["data.local_batch=24"],
}


@pytest.mark.parametrize(("changes", "overrides"), CHANGED.items())
def test_a_changed_value_is_honoured_if_it_is_unambiguous(changes: str, overrides: list[str]) -> None:
    variables = sourced(FOLDER / FILES["dgxa100_n8"]) | dict(change.split("=", 1) for change in changes.split())
    assert honoured(variables).overrides == overrides


REFUSED = {
    "BATCHSIZE=24 EVAL_ITER_SAMPLES= EVAL_ITER_START_SAMPLES=": "names 48 samples per GPU and step, but the run has "
    "24; export DGXSYSTEM=DGXA100_8x8x24x1, or BATCHSIZE as the name has it",
    "GRADIENT_STEPS=2": "names 1 gradient steps, but the run has 2; export DGXSYSTEM=DGXA100_8x8x24x2, or",
    "DGXNNODES=4": "DGXNNODES=4: dgxa100_n8 has 8 nodes",
    "DGXNGPU=4": "DGXNGPU=4: dgxa100_n8 has 8 ranks on each node",
    "EVAL_ITER_SAMPLES=100000": "EVAL_ITER_SAMPLES=100000: evaluation.interval_samples 100000 is not allowed",
    "EVAL_ITER_START_SAMPLES=1": "EVAL_ITER_START_SAMPLES=1: the first evaluation comes after one interval, "
    "EVAL_ITER_SAMPLES=175000",
    "WALLTIME_MINUTES=x": "WALLTIME_MINUTES=x: expected a whole number of at least 1",
}


@pytest.mark.parametrize(("changes", "expected"), REFUSED.items())
def test_a_changed_value_that_contradicts_the_file_is_refused(changes: str, expected: str) -> None:
    variables = sourced(FOLDER / FILES["dgxa100_n8"]) | dict(change.split("=", 1) for change in changes.split())
    with pytest.raises(ConfigError) as refused:
        honoured(variables)
    assert expected in str(refused.value)


def test_a_scaled_system_takes_its_own_rate_and_refuses_another() -> None:
    variables = sourced(FOLDER / FILES["dgxa100_n8_open"])
    with pytest.raises(ConfigError, match=r"LR=1e-3: dgxa100_n8_open scales it to its batch"):
        honoured({**variables, "LR": "1e-3"})


def test_a_users_own_file_names_its_system_by_path(tmp_path: Path, printed: Printed, answer: Answer) -> None:
    folder = tmp_path / "my systems"
    folder.mkdir()
    mine = write_json(folder / "mine_n8.json", {"extends": "dgxa100_n8", "data": {"gradient_accumulation_steps": 3}})
    printed("config", "export", mine, "--shell", "--out", tmp_path)
    file = tmp_path / "config_mine_8x8x16x3.sh"
    assert answer("config", "export", mine, "--shell")["file_name"] == file.name
    assert printed("config", "export", mine, "--shell") == file.read_text()
    exported = sourced(file)
    assert exported["DGXSYSTEM"] == mine
    assert honoured(exported).overrides == []
    assert honoured({**exported, "LR": "1e-3"}).overrides == ["optimizer.learning_rate=0.001"]
    file.write_text("export LR=1\n")
    assert "exists with different content" in printed("config", "export", mine, "--shell", "--out", tmp_path, code=2)
    assert file.read_text() == "export LR=1\n"


def test_without_an_estimate_the_time_limit_comes_from_the_system_file(tmp_path: Path, printed: Printed) -> None:
    other = {"accelerator_model_name": "some other card"}
    mine = write_json(tmp_path / "mine.json", {"extends": "dgxa100_n1", "hardware": other})
    for words in ((mine,), ("cpu_demo",), ("dgxa100_n8", "--set", "launch.walltime_minutes=60")):
        text = printed("config", "export", "--shell", *words)
        assert "From the system file (launch.walltime_minutes)." in text
        assert f"export WALLTIME_MINUTES={45 if mine in words else 60}\n" in text


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("bert10b_n128 --shell", "splits the model over GPUs (parallel), and BATCHSIZE counts samples per GPU"),
        ("dgxa100_n8 --shell --set clip.mode=after", "no variable of a configuration file sets clip.mode"),
        ("dgxa100_n8 --shell --set hardware.number_of_nodes=4", "no variable of a configuration file sets hardware."),
        (
            "dgxa100_n8_open --shell --set schedule.max_steps=77",
            "a run would refuse this configuration file: MAX_STEPS",
        ),
        ("dgxa100_n8 --out x", "--out x: only with --shell"),
        ("dgxa100_n8 --shell --out /nowhere", "/nowhere/config_DGXA100_8x8x48x1.sh: cannot be written"),
    ],
)
def test_a_system_that_no_file_can_express_is_refused(printed: Printed, words: str, expected: str) -> None:
    assert expected in printed("config", "export", *words.split(), code=2)


def test_an_export_of_changed_settings_names_them(tmp_path: Path, printed: Printed) -> None:
    words = ("--set", "data.global_batch_size=1536", "--set", "optimizer.learning_rate=1e-3")
    printed("config", "export", "dgxa100_n8", "--shell", "--out", tmp_path, *words)
    exported = sourced(tmp_path / "config_DGXA100_8x8x24x1.sh")
    arguments = honoured(exported)
    assert arguments.system == "dgxa100_n8"
    assert arguments.overrides == ["data.local_batch=24", "optimizer.learning_rate=0.001"]
