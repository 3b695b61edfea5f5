"""A system for fine-tuning has the recipe of any other, without data and steps, and passes the rules of every run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pydantic", reason="loads systems")

from bertbench.common.errors import ConfigError
from bertbench.config import load_system
from bertbench.finetune.squad_system import load_finetuning, with_steps
from tests.conftest import write_json
from tests.tiny import TINY_SYSTEM

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Answer, Printed

ALONE: dict[str, Any] = {
    **{name: TINY_SYSTEM[name] for name in ("hardware", "launch", "model")},
    "task": "squad",
    "data": {"global_batch_size": 12},
    "optimizer": {"name": "adam", "learning_rate": 1e-3},
    "schedule": {},
}


@pytest.fixture
def alone(tmp_path: Path) -> str:
    """A file without a dataset and without a number of steps."""
    return write_json(tmp_path / "alone.json", ALONE)


def refused(path: str, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_finetuning(path, overrides)
    return str(caught.value)


def test_fine_tuning_reads_the_recipe_of_its_file(alone: str) -> None:
    words = ["data.local_batch=7", "clip.mode=bucket", "optimizer.beta2=0.98", "schedule.end_learning_rate=1e-4"]
    system = with_steps(load_finetuning(alone, words), 50)
    assert (system.global_batch_size, system.clip.mode) == (14, "bucket")
    assert (system.optimizer.name, system.optimizer.learning_rate, system.optimizer.beta2) == ("adam", 1e-3, 0.98)
    assert (system.max_steps, system.schedule.warmup_steps) == (50, 0)
    assert system.learning_rate.rate(49) == pytest.approx(1e-4 + 9e-4 / 50)


def test_the_warm_up_is_given_in_steps_or_as_a_share(alone: str) -> None:
    warm_up = [
        with_steps(load_finetuning(alone, words), 50).schedule.warmup_steps
        for words in ([], ["squad.warmup_fraction=0.3"], ["schedule.warmup_steps=7"])
    ]
    assert warm_up == [0, 15, 7]
    with pytest.raises(ConfigError, match=r"schedule\.warmup_steps 51"):
        with_steps(load_finetuning(alone, ["schedule.warmup_steps=51"]), 50)


STAGES = ("parallel.pipeline=2", "parallel.microbatches=2")
REFUSED = (
    ("squad.warmup_fraction", ("squad.warmup_fraction=0.1", "schedule.warmup_steps=5")),
    ("communication.compression bf16", (*STAGES, "communication.compression=bf16")),
    ("optimizer.sharded true", ("parallel.tensor=2", "optimizer.sharded=true")),
    ("precision.compute fp16", (*STAGES, "precision.compute=fp16")),
    ("parallel.microbatches", (*STAGES, "data.gradient_accumulation_steps=2")),
    ("parallel.tensor 2", ("parallel.tensor=2", "model.feed_forward_size=23")),
    ("precision.initial_loss_scale", ("precision.initial_loss_scale=2",)),
    ("clip.divisor", ("clip.divisor=3",)),
    ("data.balance", ("data.balance=packed",)),
    ("hardware.division", ("hardware.division=closed",)),
    ("scale_from_batch", ("scale_from_batch=6",)),
)


@pytest.mark.parametrize(("named", "overrides"), REFUSED)
def test_contradicting_settings_are_refused_by_their_names_in_fine_tuning(
    alone: str, named: str, overrides: tuple[str, ...]
) -> None:
    assert named in refused(alone, "model.feed_forward_size=22", *overrides)


def test_what_fine_tuning_does_not_read_has_its_default(tmp_path: Path) -> None:
    unread: dict[str, Any] = {
        "launch": {**TINY_SYSTEM["launch"], "max_restarts": 2},
        "loss": {"normalize": "rank"},
        "data": {"global_batch_size": 12, "equal_counts": True},
        "evaluation": {"max_samples": 30, "batch_size": 5},
        "checkpoint": {"every_steps": 3},
        "precision": {"compute": "auto"},
        "optimizer": {**ALONE["optimizer"], "impl": "auto"},
    }
    system = with_steps(load_finetuning(write_json(tmp_path / "unread.json", {**ALONE, **unread})), 50)
    assert (system.loss.normalize, system.checkpoint.every_steps, system.launch.max_restarts) == ("global", None, 0)
    assert (system.max_steps, system.evaluation.batch_size) == (50, 5)
    assert (system.precision.compute, system.optimizer.impl, system.compute.compile) == ("fp32", "torch", "none")


def test_fine_tuning_refuses_a_file_for_pre_training() -> None:
    assert refused("cpu_demo").startswith("cpu_demo: ")
    assert load_finetuning("cpu_demo", ["task=squad"]).optimizer.name == "muon"


def test_fp8_is_refused_by_name_in_a_file_and_by_hand(tmp_path: Path) -> None:
    model = {**TINY_SYSTEM["model"], "hidden_size": 16, "feed_forward_size": 32}
    path = write_json(tmp_path / "fp8.json", {**ALONE, "model": model, "precision": {"compute": "fp8"}})
    assert "precision.compute" in refused(path)
    assert load_finetuning(path, ["precision.compute=bf16"]).precision.compute == "bf16"
    assert "--set 'precision.compute=fp8'" in refused(
        write_json(tmp_path / "fp32.json", {**ALONE, "model": model}), "precision.compute=fp8"
    )


def test_a_command_that_pre_trains_refuses_a_file_for_fine_tuning(printed: Printed, answer: Answer) -> None:
    for words in ("train squad_cpu", "launch squad_cpu --dry-run", "plan squad_cpu", "estimate squad_a100_2gpu"):
        assert "task squad" in printed(*words.split(), code=2)
    assert json.loads(printed("config", "show", "squad_cpu"))["optimizer"]["learning_rate"] == 1e-3
    (row,) = [row for row in answer("config", "list") if row["system"] == "squad_cpu"]
    assert (row["trains"], row["global_batch_size"]) == ("finetune squad", 16)


def test_pre_training_still_requires_its_sections(tmp_path: Path) -> None:
    content = {name: section for name, section in TINY_SYSTEM.items() if name != "schedule"}
    with pytest.raises(ConfigError, match="schedule: "):
        load_system(write_json(tmp_path / "file.json", content))
    path = write_json(tmp_path / "file.json", {name: ALONE[name] for name in ("task", "hardware", "launch")})
    for section in ("model", "data", "optimizer", "schedule"):
        assert f"{section}: " in refused(path)
