"""Each command declares the settings that it reads, refuses by name those that it can't honour, and obeys the rest."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pydantic", reason="loads systems")

from bertbench.cli.commands import COMMANDS
from bertbench.cli.configuration import ESTIMATE_LAYOUTS
from bertbench.common.errors import ConfigError
from bertbench.common.reads import Choice, Reads, Unread
from bertbench.config import load_system, system_names
from bertbench.config.given import (
    Override,
    check_given,
    check_overrides,
    needs_of,
    unread_line,
    value_of,
)
from bertbench.config.system import setting_names
from bertbench.finetune.squad_system import FINETUNE_SQUAD
from bertbench.launch.elsewhere import ON_SLURM
from bertbench.launch.run_options import TRAIN, TRAIN_PROFILE, TRAIN_SMOKE
from bertbench.runs.files import ResultFiles
from bertbench.runs.run_progress import RunProgress
from bertbench.training.in_process import RUN_TRAINING
from bertbench.training.train import train
from tests.config.changed import SEEN_ELSEWHERE, SEEN_IN_A_RUN, SEEN_SLOWLY, Change
from tests.conftest import write_json
from tests.ranks import run_each
from tests.tiny import tiny_system

if TYPE_CHECKING:
    from pathlib import Path

    from bertbench.config import System
    from bertbench.distributed.world import World
    from tests.conftest import Printed, Tiny


def parsers_with_settings() -> dict[str, argparse.ArgumentParser]:
    """The parsers of the commands that take --set, by the command's name."""
    parsers = {}
    for command in COMMANDS:
        if not command.reads_words:
            parser = argparse.ArgumentParser()
            command.add_arguments(parser)
            if "overrides" in {action.dest for action in parser._actions}:  # argparse lists them nowhere else
                parsers[command.name] = parser
    return parsers


OF_COMMANDS: dict[str, Reads] = {name: parser.get_default("reads") for name, parser in parsers_with_settings().items()}
ALL_READS = {
    reads.command: reads
    for reads in (*OF_COMMANDS.values(), TRAIN_SMOKE, TRAIN_PROFILE, RUN_TRAINING, ON_SLURM, ESTIMATE_LAYOUTS)
}
CHANGES = {change.setting: change for change in (*SEEN_IN_A_RUN, *SEEN_SLOWLY)}


@pytest.mark.parametrize("command", [name for name, reads in ALL_READS.items() if reads.trains])
def test_a_command_that_trains_declares_every_section(command: str) -> None:
    reads = ALL_READS[command]
    assert [setting for setting in setting_names() if reads.limit_on(setting) is reads.others] == []


def is_refused(system: System, reads: Reads) -> str:
    try:
        check_given(system, reads)
    except ConfigError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("command", ALL_READS)
def test_a_changed_setting_passes_or_is_refused_by_name_as_declared(tiny: Tiny, command: str) -> None:
    reads = ALL_READS[command]
    for setting, change in CHANGES.items():
        system = tiny(*change.overrides).model_copy(update={"task": reads.task or "pretrain"})
        value = value_of(system, setting)
        text = is_refused(system.from_origins(None, {setting: f"--set {setting}"}, {}), reads)
        match reads.limit_on(setting):
            case Unread() as unread if not unread.accepts(value):
                assert text.startswith(f"--set {setting}: "), text
            case Choice() as choice if value not in choice.values:
                assert text.startswith(f"--set {setting}: "), text
            case _:
                assert not text


@pytest.mark.parametrize("setting", [
    name for name in setting_names() if needs_of(name) and not name.startswith("squad.")
])  # fmt: skip
def test_a_run_refuses_a_setting_that_another_switches_off(tiny: Tiny, setting: str) -> None:
    off = {
        "model.initializer_range": "model.checkpoint=x.safetensors",
        "model.initial_weights": "model.checkpoint=x.safetensors",
        "schedule.start_warmup_step": "schedule.start_warmup_step=-3",
        "schedule.decay_from": "schedule.decay_from=warmup_steps",
        "clip.max_norm": "clip.mode=none", "data.equal_counts": "data.balance=none",
        "communication.bucket_mb": "parallel.fully_shard=true",
        "communication.buckets": "parallel.fully_shard=true",
    }.get(setting, "loss.normalize=global")  # fmt: skip
    system = tiny(off).from_origins(None, {setting: "--set here"}, {})
    assert f"--set here: train reads {setting} " in is_refused(system, TRAIN)


def test_a_changed_setting_with_the_value_that_the_command_uses_anyway_passes(tiny: Tiny) -> None:
    check_given(tiny("task=squad", "compute.compile=none", "checkpoint.final_weights=true"), FINETUNE_SQUAD)
    check_given(tiny("parallel.recompute=true"), OF_COMMANDS["evaluate"])
    assert is_refused(tiny("compute.products=onednn"), TRAIN)  # its model is narrow
    check_given(tiny("compute.products=torch"), TRAIN)
    check_given(tiny("schedule.start_warmup_step=0", "schedule.decay_from=step_0"), TRAIN)  # without warm-up


@pytest.mark.parametrize("name", system_names())
def test_every_shipped_system_stays_usable_by_every_command(name: str) -> None:
    system = load_system(name)
    for reads in ALL_READS.values():
        if reads.task in (None, system.task):
            check_given(system, reads)


def test_settings_in_a_file_that_a_command_does_not_read_are_one_line(tmp_path: Path, tiny_folder: Path) -> None:
    content = tiny_system(tiny_folder, launch={"walltime_minutes": 5}) | {"clip": {"mode": "bucket", "max_norm": 2.0}}
    content["data"] = {"path": str(tiny_folder), "global_batch_size": 12}
    system = load_system(write_json(tmp_path / "mine.json", content), ["clip.mode=after"])
    unread = unread_line(system, FINETUNE_SQUAD) or ""
    assert all(name in unread for name in ("data.path", "evaluation.target", "schedule"))
    assert unread_line(system, TRAIN) is None


SQUAD = "finetune squad --system squad_cpu --train t --dev d --vocab v --out o"
REFUSED_COMMANDS = {
    f"{SQUAD} --set parallel.pipeline=2": "parallel.microbatches",
    f"{SQUAD} --set data.balance=none": "data.balance",
    f"{SQUAD} --set hardware.division=closed": "hardware.division",
    f"{SQUAD} --set parallel.fully_shard=true --set clip.mode=bucket": "clip.mode",
    "finetune squad --system cpu_demo --train t --dev d --vocab v --out o": "cpu_demo",
    "train {} --smoke --set squad.epochs=3": "squad.epochs",
    "train {} --set optimizer.muon.momentum=0.1": "optimizer.muon.momentum",
    "train {} --smoke --set evaluation.interval_samples=99": "evaluation.interval_samples",
    "train {} --profile --set checkpoint.every_steps=2": "checkpoint.every_steps",
    "train {} --allow-config-change": "--allow-config-change",
    "train {} --set data.recipe.dupe_factor=3": "dupe_factor",
    "train {} --set task=squad": "task squad",
    "train {} --weights a --weights b": "--weights a",
    "launch {} --reason why --dry-run": "--reason",
    "launch {} --on slurm --dry-run --set launch.port=1234": "MASTER_PORT",
    "launch {} --weights a --set model.checkpoint=b --dry-run": "weights",
    "evaluate {} --set precision.residual=bf16 --set precision.compute=bf16": "precision.residual",
    "evaluate {} --set precision.compute=fp8 --set model.hidden_size=16 --set model.feed_forward_size=32":
        "precision.compute",
    "estimate dgxa100_n8 --set data.balance=none": "data.balance",
    "estimate dgxa100_n8 --set parallel.tensor=2 --set clip.mode=after --set communication.compression=none "
    "--set optimizer.sharded=false --set hardware.division=open": "parallel.tensor",
    "estimate bert10b_n128 --layouts --set data.balance=none": "data.balance",
    "data prepare --recipe mlperf --text t --vocab v --out o --system {}": "--recipe mlperf",
    "data prepare --system {} --vocab v --set data.recipe.vocab_size=50": "vocabulary",
}  # fmt: skip


@pytest.mark.parametrize(("words", "named"), REFUSED_COMMANDS.items())
def test_a_command_refuses_a_setting_that_it_cannot_honour_and_writes_nothing(
    tiny_file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: Printed, words: str, named: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOGDIR", str(tmp_path / "runs"))
    before = sorted(tmp_path.rglob("*"))
    assert named in printed(*words.replace("{}", tiny_file).split(), code=2)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_refusal_names_the_variable_that_gave_the_setting() -> None:
    with pytest.raises(ConfigError, match=r"^DATA=wiki: .*data\.path"):
        check_overrides([Override("data.path=wiki", "DATA=wiki")], FINETUNE_SQUAD)


def evidence(world: World, system: System, folder: Path) -> dict[str, Any]:
    """Return the effects of a run, without the times and settings in its log that only repeat its configuration."""
    files = ResultFiles(folder / f"result_{world.rank}.txt") if world.leads else None
    if files:
        files.folder.mkdir(parents=True)
    with RunProgress(system, enabled=False) as progress:
        run = train(system, world, 11, files, progress)
    if not files:
        return {}
    rows = [json.loads(line) for line in files.metrics.read_text().splitlines()]
    timeless = [{name: row[name] for name in row if not name.endswith(("_ms", "_s", "per_s"))} for row in rows]
    return {
        "steps": timeless,
        "evaluations": run.evaluations,
        "files": sorted(str(path.relative_to(folder)) for path in folder.rglob("*")),
        "communication": json.loads((files.folder / "communication.json").read_text()),
    }


def differing(tiny: Tiny, tmp_path: Path, changes: list[Change], ranks: int) -> dict[str, bool]:
    """Return for each change whether it changes the run, compared with a run with only the settings that it needs."""
    wanted = dict.fromkeys(overrides for change in changes for overrides in (change.needs, change.overrides))
    runs = [
        (tiny(f"launch.ranks_per_node={ranks}", *overrides), tmp_path / str(number))
        for number, overrides in enumerate(wanted)
    ]
    did = dict(zip(wanted, run_each(ranks, evidence, *runs)[0], strict=True))
    return {change.setting: did[change.overrides] != did[change.needs] for change in changes}


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_changed_setting_changes_the_run(tiny: Tiny, tmp_path: Path, ranks: int) -> None:
    changes = [change for change in SEEN_IN_A_RUN if change.ranks == ranks]
    found = differing(tiny, tmp_path, changes, ranks)
    assert [setting for setting, differs in found.items() if not differs] == []


@pytest.mark.slow
def test_a_changed_layout_changes_the_run(tiny: Tiny, tmp_path: Path) -> None:
    found = differing(tiny, tmp_path, list(SEEN_SLOWLY), 2)
    assert [setting for setting, differs in found.items() if not differs] == []


def test_these_tests_cover_every_setting() -> None:
    read = {name for name in setting_names() if not isinstance(TRAIN.limit_on(name), Unread)}
    elsewhere = {
        name for name in read if any(name == given or name.startswith(f"{given}.") for given in SEEN_ELSEWHERE)
    }
    assert read - CHANGES.keys() - elsewhere == set()
