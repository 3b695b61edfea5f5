"""Variables that published submissions export: honoured, refused by name, printed and recorded."""

import argparse
import dataclasses
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bertbench.cli.main import main
from bertbench.common.errors import ConfigError
from bertbench.common.paths import REPOSITORY
from bertbench.distributed.world import World
from bertbench.launch.command_lines import SLURM_SCRIPT
from bertbench.launch.honour import honour
from bertbench.launch.image import image_for
from bertbench.launch.run_options import RUN, TRAIN, RunOptions
from bertbench.launch.variables import HYPER_PARAMETERS, MUST_AGREE, TABLE, Variables, minutes_of
from bertbench.training import rank_run
from tests.conftest import Answer, Captured, Printed, write_json
from tests.distributed.test_ranks import SHELL
from tests.ranks import run_command, run_ranks

SUBMISSION = {  # of NVIDIA's v2.1 round on 8 DGX A100, as its configuration exports it
    "DGXSYSTEM": "DGXA100_8x8x48x1", "DGXNNODES": "8", "DGXNGPU": "8", "BATCHSIZE": "48", "GRADIENT_STEPS": "1",
    "LR": "2.0992e-3", "MAX_SAMPLES_TERMINATION": "4500000", "MAX_STEPS": "1059", "OPT_LAMB_BETA_1": "0.60466",
    "OPT_LAMB_BETA_2": "0.85437", "START_WARMUP_STEP": "0", "WEIGHT_DECAY_RATE": "0.1", "WARMUP_STEPS": "0",
    "EVAL_ITER_START_SAMPLES": "175000", "EVAL_ITER_SAMPLES": "175000", "WALLTIME": "155", "NEXP": "10",
    "CONT": "registry.example.org/bert:1", "EXTRA_PARAMS": "--unpad",
}  # fmt: skip


@pytest.fixture(autouse=True)
def nothing_exported(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*TABLE, "CONTAINER", *SHELL):
        monkeypatch.delenv(name, raising=False)


Honoured = Callable[..., argparse.Namespace]


@pytest.fixture
def honoured() -> Honoured:
    """Call `honour` for a command line of `launch` that is given as fields, with these variables."""

    def call(exported: dict[str, str], **given: Any) -> argparse.Namespace:
        arguments = argparse.Namespace(
            **{
                "system": None,
                "runs": None,
                "seed": None,
                "overrides": [],
                "on": "local",
                "dry_run": True,
                "close": None,
                "reads": TRAIN,
            }
            | given
        )
        honour(arguments, exported)
        return arguments

    return call


@pytest.mark.parametrize("command", ["train", "launch"])
def test_a_system_for_fine_tuning_is_refused_as_without_variables(
    printed: Printed, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("LR", "1e-4")
    assert "run `bertbench finetune squad --system squad_cpu`" in printed(command, "squad_cpu", code=2)


def test_a_published_configuration_is_the_system_that_ships_for_it(
    answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in {**SUBMISSION, "CONTAINER": "pyxis"}.items():
        monkeypatch.setenv(name, text)
    (line,) = answer("launch", "--on", "slurm", "--dry-run")["commands"]
    assert line[0] == "env"
    assert {"CONTAINER=pyxis", "CONT=registry.example.org#bert:1", "NEXP=10"} <= set(line)
    assert {"--nodes=8", "--ntasks-per-node=8", "--time=155"} <= set(line)
    assert line[-1] == "dgxa100_n8"  # which has all values of this submission: nothing is left for --set
    monkeypatch.setenv("MAX_STEPS", "1060")
    (line,) = answer("launch", "--on", "slurm", "--dry-run")["commands"]
    assert line[line.index("dgxa100_n8") + 1 :] == ["--set", "schedule.max_steps=1060"]


def test_variables_with_the_system_s_own_values_are_one_line_and_no_run_refuses_them(honoured: Honoured) -> None:
    exported = {name: SUBMISSION[name] for name in ("DGXNNODES", "BATCHSIZE", "LR", "EVAL_ITER_SAMPLES")}
    arguments = honoured(exported, system="dgxa100_n8")
    assert arguments.overrides == []
    assert arguments.variables.lines[0] == "BATCHSIZE, LR, EVAL_ITER_SAMPLES, DGXNNODES: as dgxa100_n8 has"
    assert arguments.variables.values == exported


def test_a_number_that_follows_from_the_batch_is_compared_with_the_changed_batch_s(honoured: Honoured) -> None:
    exported = {"BATCHSIZE": "72", "EVAL_ITER_SAMPLES": "175000"}  # of 64 GPUs: 4,608 samples, evaluated every 200,000
    with pytest.raises(ConfigError, match=r"EVAL_ITER_SAMPLES=175000: .* is not allowed in the closed division"):
        honoured(exported, system="dgxa100_n8")
    arguments = honoured({**exported, "EVAL_ITER_SAMPLES": "200000"}, system="dgxa100_n8")
    assert arguments.overrides == ["data.local_batch=72"]
    drawn_by_share = ["data.strata_quotas=null"]  # the file's quotas are for 16 samples a rank
    opened = honoured(exported, system="dgxa100_n128_open", overrides=list(drawn_by_share))
    assert opened.overrides == ["data.local_batch=72", "evaluation.interval_samples=175000", *drawn_by_share]


@pytest.mark.parametrize(
    ("name", "system"),
    [
        ("dgxa100_n8", "dgxa100_n8"),
        ("DGXA100_8x8x48x1", "dgxa100_n8"),
        ("config_DGXA100_8x8x48x1.sh", "dgxa100_n8"),
        ("/configs/config_DGXA100_1x8x56x1.sh", "dgxa100_n1"),
        ("DGXA100_128x8x2x1_pack", "dgxa100_n128"),
        ("H200_1x8x48x1_pack", "dgxh200_n1"),
    ],
)
def test_a_system_has_our_name_or_a_submission_s(honoured: Honoured, name: str, system: str) -> None:
    assert honoured({"DGXSYSTEM": name}).system == system
    assert honoured({"CONFIG_NAME": name}).variables.values == {"CONFIG_NAME": name}


def test_a_word_within_a_name_of_one_s_own_is_no_ending(honoured: Honoured) -> None:
    assert honoured({"CONFIG_NAME": "my_open_cluster"}, system="dgxa100_n8").overrides == []
    with pytest.raises(ConfigError, match="names the open division"):
        honoured({"CONFIG_NAME": "my_cluster_open"}, system="dgxa100_n8")


def test_packed_rows_count_as_two_samples(honoured: Honoured) -> None:
    arguments = honoured({"DGXSYSTEM": "H200_1x8x48x1_pack", "BATCHSIZE": "48"})
    assert arguments.overrides == []  # published as 768 samples of 8 GPUs
    by_hand = honoured({"DGXSYSTEM": "H200_1x8x48x1_pack", "BATCHSIZE": "40"}, system="dgxh200_n1")
    assert by_hand.overrides == ["data.local_batch=80"]


@pytest.mark.parametrize("name", ["XE9680x8H100-SXM-80GB", "DGXH200_1x8x48x1", "DGXH200_1x8x48x1_pack"])
def test_extra_params_say_whether_a_batch_counts_packed_rows(honoured: Honoured, name: str) -> None:
    packed = {"EXTRA_PARAMS": "--dense_seq_output --packed_samples --use_cuda_graph", "PACKING_FACTOR": "1"}
    arguments = honoured({"DGXSYSTEM": name, "BATCHSIZE": "40", **packed}, system="dgxh200_n1")
    assert arguments.overrides == ["data.local_batch=80"]
    (said,) = [line for line in arguments.variables.lines if line.startswith("EXTRA_PARAMS")]
    assert "counts packed rows" in said
    assert "not used" not in said
    (said,) = honoured(packed | {"PACKING_FACTOR": ""}, system="dgxh200_n1").variables.lines
    assert "EXTRA_PARAMS" in said and "not used" in said, "no BATCHSIZE that it could count"


def test_a_name_counts_the_rows_that_extra_params_pack(honoured: Honoured) -> None:
    exported = {"DGXSYSTEM": "DGXH200_1x8x48x1", "EXTRA_PARAMS": "--packed_samples"}
    assert honoured({**exported, "BATCHSIZE": "48"}).overrides == []
    with pytest.raises(ConfigError, match="export DGXSYSTEM=DGXH200_1x8x40x1_pack, or BATCHSIZE as"):
        honoured({**exported, "BATCHSIZE": "40"})
    with pytest.raises(ConfigError, match="ends with _pack, but EXTRA_PARAMS lacks --packed_samples"):
        honoured({"DGXSYSTEM": "DGXH200_1x8x48x1_pack", "EXTRA_PARAMS": "--unpad"}, system="dgxh200_n1")


def test_the_hyper_parameters_that_a_file_leaves_to_the_system_are_named_with_their_values(honoured: Honoured) -> None:
    exported = {name: text for name, text in SUBMISSION.items() if name != "WEIGHT_DECAY_RATE"}
    lines = honoured(exported).variables.lines
    assert "not exported, so as dgxa100_n8 has: WEIGHT_DECAY_RATE 0.1 (published scripts take 0.01), TARGET_" in (
        "\n".join(lines)
    )
    assert "BATCHSIZE" not in lines[-1]
    given = honoured(exported, overrides=["optimizer.weight_decay=0.01"]).variables.lines
    assert not any("WEIGHT_DECAY_RATE" in line for line in given)
    assert not any("not exported" in line for line in honoured({"SEED": "3"}, system="dgxa100_n8").variables.lines)


def test_an_optimizer_that_a_file_doesn_t_mean_is_named(honoured: Honoured) -> None:
    exported = {"LR": "2e-3", "OPT_LAMB_BETA_1": "0.6"}  # a file for LAMB, whose script has no OPTIMIZER
    adam = {"system": "dgxa100_n8_open", "overrides": ["scale_from_batch=null", "optimizer.name=adam"]}
    assert "OPTIMIZER" not in honoured(exported, **adam).variables.lines[-1], "an argument names it"
    exported |= {"END_LR": "4.94549100544884e-5"}
    said = "\n".join(honoured(exported, system="dgxa100_n128_open").variables.lines)
    assert "OPTIMIZER adam (published scripts take lamb), EPSILON 1e-09 (published scripts take 1e-6)" in said
    assert "END_LR 4" not in said
    del exported["END_LR"]
    assert "OPTIMIZER" not in honoured(exported, system="dgxa100_n8").variables.lines[-1]


def test_the_demo_does_not_start_with_exported_hyper_parameters() -> None:
    for name in HYPER_PARAMETERS:
        done = subprocess.run(
            [REPOSITORY / "run_and_time.sh", "--smoke"],
            env={**os.environ, name: "1", "PGNNODES": "1"},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (2, "")
        assert f"{name} is exported, but nothing names a system" in done.stderr


def test_an_argument_beats_a_variable_and_is_named(honoured: Honoured) -> None:
    exported = {"DGXSYSTEM": "dgxa100_n1", "NEXP": "10", "SEED": "3", "LR": "1e-3", "BATCHSIZE": "7", "DGXNNODES": "2"}
    given = ["optimizer.learning_rate=2e-3", "data.global_batch_size=448", "hardware.number_of_nodes=1"]
    arguments = honoured(exported, system="dgxa100_n2", runs=1, seed=5, overrides=given)
    assert (arguments.system, arguments.runs, arguments.seed, arguments.overrides) == ("dgxa100_n2", 1, 5, given)
    assert arguments.variables.values == {}
    assert [line.partition(" is not used: ")[::2] for line in arguments.variables.lines[:-1]] == [
        ("DGXSYSTEM=dgxa100_n1", "the argument dgxa100_n2 names the system"),
        ("NEXP=10", "--runs 1 is given"),
        ("SEED=3", "--seed 5 is given"),
        ("BATCHSIZE=7", "--set data.global_batch_size is given"),
        ("LR=1e-3", "--set optimizer.learning_rate is given"),
        ("DGXNNODES=2", "--set hardware.number_of_nodes is given"),
    ]


def test_an_empty_variable_is_not_set(honoured: Honoured) -> None:
    arguments = honoured(dict.fromkeys(TABLE, "") | {"LR": "  "}, system="cpu_demo")
    assert (arguments.system, arguments.runs, arguments.seed, arguments.overrides) == ("cpu_demo", 1, None, [])
    assert arguments.variables == Variables()


REFUSED = (
    "NEXP=0", "SEED=3 NEXP=2", "LR=nan", "BATCHSIZE=1.5", "DGXNNODES=4", "DGXNGPU=4", "WALLTIME=soon",
    "EVALDIR=/nowhere", "CHECKPOINTDIR=/x", "CHECKPOINTDIR_PHASE1=/x", "EVAL_ITER_START_SAMPLES=9", "OPTIMIZER=sgd",
    "EPSILON=1e-9", "UNITTEST=1", "WARMUP_PROPORTION=0.1", "PGNNODES=4", "DGXSYSTEM=a PGSYSTEM=PG",
    "CONFIG_NAME=XE8545_16x4_clipafter", "CONFIG_NAME=DGXA100_8x8x48x1_open", "TARGET_MLM_ACCURACY=0.5",
)  # fmt: skip


@pytest.mark.parametrize("exported", REFUSED)
def test_a_wrong_or_contradicting_variable_is_one_error_that_names_it(
    printed: Printed, monkeypatch: pytest.MonkeyPatch, exported: str
) -> None:
    for setting in exported.split():
        monkeypatch.setenv(*setting.split("=", 1))
    said = printed("launch", "dgxa100_n8", "--dry-run", code=2)
    assert exported.split(maxsplit=1)[0] in said
    assert len(said.splitlines()) == 1


NAMED = (
    "DGXSYSTEM=DGXA100_8x8x24x1", "CONFIG_NAME=DGXA100_8x8x24x1", "DGXSYSTEM=DGXA100_8x8x24x2",
    "DGXSYSTEM=DGXA100_8x8x48x1_clipafter", "DGXSYSTEM=DGXH100_1x8x48x1", "DGXSYSTEM=dgxa100_n9",
    "PGSYSTEM=PG BATCHSIZE=64", "LR=1e-3 DGXSYSTEM=dgxa100_n8_open", "BATCHSIZE=32 DGXSYSTEM=cpu_parallel",
)  # fmt: skip


@pytest.mark.parametrize("exported", NAMED)
def test_a_name_that_contradicts_the_system_is_refused(honoured: Honoured, exported: str) -> None:
    with pytest.raises(ConfigError) as refused:
        honoured(dict(setting.split("=", 1) for setting in exported.split()))
    assert exported.split(maxsplit=1)[0] in str(refused.value)


COMMANDS = (
    "launch SYSTEM --dry-run", "config show SYSTEM", "plan SYSTEM", "estimate SYSTEM",
    "config init --from SYSTEM --gpus 8 --gpu-model a100-sxm --out x.json",
)  # fmt: skip
ARGUMENTS = {
    "config_DGXA100_1x8x56x1.sh": "",
    "DGXA100_1x8x28x1_pack": "",
    "DGXA100_1x8x24x1": "names 24 samples per GPU and step, but the run has 56",
    "DGXA100_1x8x28x2": "names 2 gradient steps, but the run has 1",
    "DGXA100_1x8x56x1_pack": "names 112 samples per GPU and step, but the run has 56",
    "DGXA100_1x8x56x1_clipafter": "names clipping after the all-reduce",
    "XE9680x8H100-SXM-80GB": "config init",
}
TYPED = [
    *((command, "DGXA100_1x8x56x1", "") for command in COMMANDS),
    *((command, "DGXH100_2x8x48x1", "--nodes 2 --gpus 8") for command in COMMANDS),
    *((COMMANDS[0], name, expected) for name, expected in ARGUMENTS.items()),
]


@pytest.mark.parametrize(("command", "name", "expected"), TYPED)
def test_every_command_takes_the_name_of_a_configuration_or_refuses_it_as_launch_does(
    printed: Printed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str, name: str, expected: str
) -> None:
    monkeypatch.chdir(tmp_path)
    said = printed(*command.replace("SYSTEM", name).split(), code=2 if expected else 0)
    assert expected in said
    if expected:
        assert said.count("bertbench: ") == len(said.splitlines()) - said.count("describing the machine") == 1
        assert list(tmp_path.iterdir()) == []


def test_an_argument_that_names_a_configuration_counts_as_an_exported_name(honoured: Honoured) -> None:
    packed = {"EXTRA_PARAMS": "--packed_samples", "BATCHSIZE": "48", "DGXSYSTEM": "XE9680_H200"}
    arguments = honoured(packed, system="H200_1x8x48x1")
    assert (arguments.system, arguments.overrides) == ("dgxh200_n1", [])
    assert "DGXSYSTEM=XE9680_H200 is not used: the argument H200_1x8x48x1 names the system" in arguments.variables.lines
    with pytest.raises(ConfigError, match="H200_1x8x48x1 names 96 samples per GPU and step, but the run has 80"):
        honoured(packed | {"BATCHSIZE": "40"}, system="H200_1x8x48x1")
    with pytest.raises(ConfigError, match="DGXSYSTEM=DGXA100_1x8x56x1_clipafter names clipping after"):
        honoured({"DGXSYSTEM": "DGXA100_1x8x56x1_clipafter"}, system="DGXA100_1x8x56x1")
    resized = honoured({}, system="DGXA100_1x8x24x1", overrides=["data.local_batch=24"])
    assert resized.system == "dgxa100_n1"


def test_a_system_file_may_be_called_as_a_configuration_file(honoured: Honoured, tmp_path: Path) -> None:
    path = write_json(tmp_path / "config_mine.json", {"extends": "dgxa100_n1"})
    assert honoured({"DGXSYSTEM": str(path)}).system == str(path)
    assert honoured({}, system=str(path)).system == str(path)


def test_a_name_agrees_with_the_other_exported_variables(honoured: Honoured) -> None:
    arguments = honoured({"DGXSYSTEM": "DGXA100_8x8x24x2", "BATCHSIZE": "48", "GRADIENT_STEPS": "2"})
    assert arguments.overrides == ["data.gradient_accumulation_steps=2"]


def test_a_command_that_makes_one_run_refuses_several(printed: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEXP", "2")
    assert "NEXP=2: `bertbench train` makes one run" in printed("train", "cpu_demo", code=2)
    for name, text in {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, text)
    assert "NEXP=2: torchrun starts the ranks of one run" in printed("launch", "cpu_demo", code=2)
    monkeypatch.delenv("NEXP")
    assert "--runs 3: torchrun starts" in printed("launch", "cpu_demo", "--runs", "3", code=2)


def test_a_variable_of_run_sub_beats_the_file_and_an_argument_beats_it(
    answer: Answer, printed: Printed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    exported = {"RESTARTS": "3", "BERTBENCH_HOME": str(tmp_path), "NEXP": "4", "GPUS": "device=2"}
    for name, text in exported.items():
        monkeypatch.setenv(name, text)
    (line,) = answer("launch", "dgxa100_n1", "--on", "slurm", "--dry-run")["commands"]
    assert {"RESTARTS=3", f"BERTBENCH_HOME={tmp_path}", "NEXP=4"} <= set(line)
    (line,) = answer("launch", "dgxa100_n1", "--on", "docker", "--dry-run")["commands"]
    assert {"GPUS=device=2", "NEXP=4"} <= set(line)
    more = ("--set", "launch.max_restarts=1", "--runs", "2")
    (line,) = answer("launch", "dgxa100_n1", "--on", "slurm", "--dry-run", *more)["commands"]
    assert {"RESTARTS=1", "NEXP=2"} <= set(line)
    monkeypatch.setenv("RESTARTS", "often")
    assert "RESTARTS is 'often'" in printed("launch", "dgxa100_n1", "--on", "slurm", "--dry-run", code=2)


def test_other_commands_don_t_read_them(printed: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in TABLE:
        monkeypatch.setenv(name, "abc")
    assert "cpu_demo" in printed("config", "list")
    assert '"global_batch_size": 128' in printed("config", "show", "cpu_demo")


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("90", 90),
        ("90:30", 91),
        ("1:30:00", 90),
        ("1-0", 1440),
        ("1-2:30", 1590),
        ("0-0:0:1", 1),
        ("UNLIMITED", math.inf),
        ("infinite", math.inf),
    ],
)
def test_a_wall_time_is_read_as_sbatch_reads_it(text: str, minutes: int) -> None:
    assert minutes_of(text) == minutes


def test_a_job_without_a_limit_of_time(answer: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WALLTIME", "WALLTIME_MINUTES"):
        with monkeypatch.context() as exported:
            exported.setenv(name, "UNLIMITED")
            (line,) = answer("launch", "dgxa100_n8", "--on", "slurm", "--dry-run")["commands"]
            assert "--time=UNLIMITED" in line
            assert answer("launch", "dgxa100_n8", "--dry-run")["commands"]


def test_a_hyper_parameter_by_another_name_passes_if_the_system_has_its_value(honoured: Honoured) -> None:
    exported = {
        "OPTIMIZER": "DistributedFusedLAMB", "EPSILON": "1e-6", "END_LR": "0", "START_STEPS": "0", "GRAD_STEPS": "1",
        "EVAL_ITER": "175000", "EVAL_START": "175000",
    }  # fmt: skip
    assert set(exported) < set(MUST_AGREE)
    assert honoured(exported, system="dgxa100_n8").variables.values == exported
    assert honoured({"WARMUP_PROPORTION": "0.0", "UNITTEST": "0"}, system="dgxa100_n8").overrides == []
    chosen = honoured({"OPTIMIZER": "LAMB"}, system="dgxa100_n8_open", overrides=["optimizer.name=adam"])
    assert "OPTIMIZER=LAMB is not used: --set optimizer.name is given" in chosen.variables.lines


def test_a_record_ends_the_reading_of_variables(honoured: Honoured) -> None:
    first = honoured({"LR": "1e-3", "NEXP": "4", "DATADIR": "/a b,c&d"}, system="dgxa100_n1")
    record = RunOptions(exported=first.variables.values).text()
    later = honoured({"LR": "fast", RUN: record}, system="dgxa100_n1")
    assert later.overrides == []
    assert later.variables.values == {"LR": "1e-3", "NEXP": "4", "DATADIR": "/a b,c&d"}
    assert later.variables.lines == []


def test_options_pass_to_another_process_unchanged_and_a_script_adds_to_them() -> None:
    options = RunOptions(
        "a b.json", ["data.path=a&b=c"], seed=0, result=Path("/ä/\udcff.txt"), resume="auto", short="smoke",
        exported={"LR": "1e-3"}, launched=True, began=1.5,
    )  # fmt: skip
    assert RunOptions.passed_on({RUN: options.text()}) == options
    more = RunOptions.passed_on({RUN: f"{options.text()}&began=2.25&caches_cleared=true&job=7"})
    assert more == dataclasses.replace(options, began=2.25, caches_cleared=True, job=7)
    assert RunOptions.passed_on({}) == RunOptions()


def test_in_a_job_the_job_makes_the_runs(honoured: Honoured) -> None:
    arguments = honoured({RUN: "job=7", "NEXP": "4", "WALLTIME": "90"}, system="dgxa100_n1", dry_run=False)
    assert (arguments.runs, arguments.variables.values["NEXP"]) == (1, "4")
    with pytest.raises(ConfigError, match="SEED=3 with NEXP=4 would repeat the same run"):
        honoured({RUN: "job=7", "NEXP": "4", "SEED": "3"}, system="dgxa100_n1", dry_run=False)


def test_ranks_that_no_launcher_of_ours_starts_read_them_and_one_prints(tmp_path: Path, tiny_file: str) -> None:
    done = run_command(2, ["train", tiny_file, "--smoke"], tmp_path, LR="3e-3", SEED="7", BATCHSIZE="5")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("LR=3e-3: --set optimizer.learning_rate=0.003") == 1
    folder = tmp_path / "runs" / "tiny" / "smoke" / "smoke_0"
    run, config = (json.loads((folder / name).read_text()) for name in ("run.json", "config.json"))
    assert (config["optimizer"]["learning_rate"], config["data"]["local_batch"], run["seed"]) == (0.003, 5, 7)
    assert run["variables"] == {"BATCHSIZE": "5", "LR": "3e-3", "SEED": "7", "LOGDIR": str(tmp_path / "runs")}


def test_one_rank_per_node_prints_a_mistake_of_all(tmp_path: Path, tiny_file: str) -> None:
    done = run_command(2, ["train", tiny_file], tmp_path, TORCHELASTIC_RUN_ID="none", LR="fast")
    assert done.returncode == 2
    assert done.stderr.startswith("bertbench: ")
    assert "LR=fast" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "runs").exists()


def disagree(world: World) -> str:
    variables = {"LR": "1e-3", "DATADIR": str(world.rank)} if world.rank else {"SEED": "3"}
    try:
        rank_run.agree_on_variables(world, variables)
    except ConfigError as error:
        return str(error)
    return "agreed"


def test_ranks_with_different_variables_are_one_error() -> None:
    expected = (
        "LR is not set on rank 0 and 1e-3 on rank 1; SEED is 3 on rank 0 and not set on rank 1; export the same on "
    )
    assert run_ranks(2, disagree) == [f"{expected}all nodes"] * 2


@pytest.mark.slow
def test_a_run_in_an_interactive_shell_starts_its_ranks_and_records_the_exported_variables(
    tmp_path: Path, tiny_file: str
) -> None:
    exported = {**SHELL, "MASTER_ADDR": "nowhere.invalid", "LOGDIR": str(tmp_path), "DGXSYSTEM": tiny_file, "NEXP": "2"}
    done = subprocess.run(
        [REPOSITORY / "run_and_time.sh", "--smoke"],
        env={**os.environ, **exported, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("NEXP=2: --runs 2") == 1
    for number in range(2):
        run = json.loads((tmp_path / "tiny" / "smoke" / f"smoke_{number}" / "run.json").read_text())
        assert run["world_size"] == 2
        assert run["variables"] == {"DGXSYSTEM": tiny_file, "NEXP": "2", "LOGDIR": str(tmp_path)}


def test_a_dry_run_prints_a_complete_command_for_another_shell(
    printed: Printed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Captured
) -> None:
    image = tmp_path / "bert image.sqsh"
    image.touch()
    monkeypatch.chdir(tmp_path)
    site = {
        "CONTAINER": "pyxis", "CONT": "bert image.sqsh", "CLEAR_CACHES": "sudo sysctl a,b", "SBATCH_PARTITION": "gpu",
        "NCCL_IB_HCA": "mlx5_0,mlx5_1", "DATADIR": "data", "LR": "4e-4",
    }  # fmt: skip
    for name, text in site.items():
        monkeypatch.setenv(name, text)
    line = printed("launch", "dgxa100_n1", "--on", "slurm", "--dry-run")
    sbatch = tmp_path / "sbatch"
    sbatch.write_text('#!/bin/sh\nenv\nprintf "word %s\\n" "$@"\n')
    sbatch.chmod(0o755)
    other = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    seen = subprocess.run(["bash", "-c", line], env=other, cwd="/", capture_output=True, text=True, check=True).stdout
    expected = {**site, "CONT": str(image), "DATADIR": str(tmp_path / "data")}
    del expected["LR"]
    assert {f"{name}={text}" for name, text in expected.items()} <= set(seen.splitlines())
    assert "word optimizer.learning_rate=0.0004" in seen
    write_json(tmp_path / "mine.json", {"extends": "dgxa100_n1"})
    options = ("--set", "data.balance=none", "--resume", "runs/result_0.txt")
    line = printed("launch", "mine.json", *options, "--on", "slurm", "--dry-run", "--", "--partition", "b c", "-c", "4")
    seen = subprocess.run(["bash", "-c", line], env=other, cwd="/", capture_output=True, text=True, check=True).stdout
    given = [word.removeprefix("word ") for word in seen.splitlines() if word.startswith("word ")]
    script = given.index(str(SLURM_SCRIPT))
    assert given[script - 4 : script + 2] == [
        "--partition",
        "b c",
        "-c",
        "4",
        str(SLURM_SCRIPT),
        f"{tmp_path}/mine.json",
    ]
    assert given[-2:] == ["--resume", f"{tmp_path}/runs/result_0.txt"]
    exports, *lines = printed("launch", "dgxa100_n2", "--dry-run").splitlines()
    assert exports == f"export DATADIR={tmp_path}/data NCCL_IB_HCA=mlx5_0,mlx5_1"
    assert all(line.startswith("torchrun ") and "optimizer.learning_rate=0.0004" in line for line in lines)
    assert main(["launch", "dgxa100_n2", "--dry-run", "--runs", "3"]) == 0
    assert "--runs 3: these commands start one run; repeat them for each run" in capsys.readouterr().err


OPTIONS = {
    "--on slurm -- --nodes=4": "--nodes=4",
    "--on slurm -- -N4": "-N4",
    "--on slurm -- -p gpu --ntasks-per-node 4": "--ntasks-per-node",
    "--on slurm -- --wrap=true": "--wrap=true",
    "--on slurm -- gpu": "gpu after --",
    "--on docker -- --partition=gpu": "--partition=gpu",
}


@pytest.mark.parametrize(("words", "named"), OPTIONS.items())
def test_an_option_of_sbatch_that_contradicts_the_system_is_refused(printed: Printed, words: str, named: str) -> None:
    assert named in printed("launch", "dgxa100_n1", "--dry-run", *words.split(), code=2)


IMAGES = [
    ("pyxis", "registry.example.org/team/bert:1", "registry.example.org#team/bert:1"),
    ("pyxis", "docker://registry.example.org/bert", "docker://registry.example.org#bert"),
    ("pyxis", "localhost/bert", "localhost#bert"),
    ("pyxis", "team/bert:1", "team/bert:1"),
    ("pyxis", "registry.example.org#bert:1", "registry.example.org#bert:1"),
    ("apptainer", "registry.example.org/bert:1", "docker://registry.example.org/bert:1"),
    ("apptainer", "docker://registry.example.org#bert:1", "docker://registry.example.org/bert:1"),
    ("apptainer", "oras://registry.example.org/bert:1", "oras://registry.example.org/bert:1"),
    ("docker", "registry.example.org#bert:1", "registry.example.org/bert:1"),
]


@pytest.mark.parametrize(("starter", "image", "expected"), IMAGES)
def test_an_image_is_named_in_the_form_of_the_program_that_starts_it(starter: Any, image: str, expected: str) -> None:
    assert image_for(starter, image) == expected


@pytest.mark.parametrize(
    ("starter", "image", "expected"),
    [
        ("enroot", "registry.example.org/bert:1", "CONT is registry.example.org/bert:1"),
        ("docker", "/images/bert.sqsh", "/images/bert.sqsh"),
    ],
)
def test_an_image_that_can_t_start_is_refused(starter: Any, image: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        image_for(starter, image)


def test_an_image_is_started_by_a_program_that_this_machine_has(
    answer: Answer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    words = ("launch", "dgxa100_n8", "--on", "slurm", "--dry-run")
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "bert.sqsh").touch()
    name = "registry.example.org/bert:1"
    for program, image, expected in (
        ("docker", name, {"CONTAINER=docker", f"CONT={name}"}),
        ("singularity", name, {"CONTAINER=apptainer", f"CONT=docker://{name}"}),
        ("enroot", f"{tmp_path}/bert.sqsh", {"CONTAINER=enroot", f"CONT={tmp_path}/bert.sqsh"}),
        ("ch-run", str(tmp_path), {"CONTAINER=charliecloud", f"CONT={tmp_path}"}),
        ("srun", name, {"CONTAINER=pyxis", "CONT=registry.example.org#bert:1"}),
        ("srun", f"{tmp_path}/bert.sqsh", {"CONTAINER=pyxis", f"CONT={tmp_path}/bert.sqsh"}),
    ):
        (tmp_path / program).write_text("#!/bin/sh\necho '  --container-image=[USER@]IMAGE'\n")
        (tmp_path / program).chmod(0o755)
        monkeypatch.setenv("CONT", image)
        (line,) = answer(*words)["commands"]
        assert expected <= set(line)


def test_an_image_that_no_program_here_can_start_is_for_pyxis(
    answer: Answer, printed: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    words = ("launch", "dgxa100_n8", "--on", "slurm", "--dry-run")
    monkeypatch.setenv("CONT", "registry.example.org/bert:1")
    (line,) = answer(*words)["commands"]
    assert {"CONTAINER=pyxis", "CONT=registry.example.org#bert:1"} <= set(line)
    monkeypatch.setenv("CONTAINER", "none")
    (line,) = answer(*words)["commands"]
    assert "CONTAINER=none" in line
    monkeypatch.delenv("CONTAINER")
    monkeypatch.setenv("CONT", "/")
    assert "CONT is /, but CONTAINER isn't set; set CONTAINER to apptainer or charliecloud" in printed(*words, code=2)
