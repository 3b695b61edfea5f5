"""A system for fine-tuning has the recipe of any other, without data and steps, and passes the rules of every run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pydantic", reason="loads systems")

from bertbench.common.errors import ConfigError
from bertbench.config import load_system, pre_training_names, system_names
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
SQUAD = ("squad_a100_2gpu", "squad_a100_4gpu", "squad_cpu")


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


def test_the_studys_values_are_in_its_systems() -> None:
    assert sorted(set(system_names()) - set(pre_training_names())) == list(SQUAD)
    for name in SQUAD[:2]:
        system = with_steps(load_finetuning(name), 5000)
        optimizer = system.optimizer
        assert (optimizer.name, optimizer.learning_rate, optimizer.weight_decay, optimizer.epsilon) == (
            "adam", 3e-5, 0.01, 1e-6,
        )  # fmt: skip
        assert (system.squad.epochs, system.schedule.warmup_steps) == (5, 500)
        # 16 samples for each GPU and two accumulation steps
        assert system.global_batch_size == 2 * 16 * system.world_size
        assert (system.model.hidden_size, system.model.layers) == (768, 12)
        assert system.world_size == int(name[-4])


@pytest.mark.parametrize("layout", [(2, 2), (4, 1), (4, 4)])
def test_the_studys_systems_fit_its_pipelines(layout: tuple[int, int]) -> None:
    ranks, stages = layout
    words = [f"parallel.pipeline={stages}", f"parallel.microbatches={stages}"] if stages > 1 else []
    assert load_finetuning(f"squad_a100_{ranks}gpu", words).layout.pipeline == stages


def test_the_warm_up_is_given_in_steps_or_as_a_share(alone: str) -> None:
    warm_up = [
        with_steps(load_finetuning(alone, words), 50).schedule.warmup_steps
        for words in ([], ["squad.warmup_fraction=0.3"], ["schedule.warmup_steps=7"])
    ]
    assert warm_up == [0, 15, 7]
    with pytest.raises(ConfigError, match=r"schedule\.warmup_steps 51 would end after the run"):
        with_steps(load_finetuning(alone, ["schedule.warmup_steps=51"]), 50)


STAGES = ("parallel.pipeline=2", "parallel.microbatches=2")
REFUSED = {
    "finetune squad reads squad.warmup_fraction only with schedule.warmup_steps 0":
        ("squad.warmup_fraction=0.1", "schedule.warmup_steps=5"),
    "clip.mode bucket needs whole models, but parallel splits this one; set it to none or after":
        (*STAGES, "clip.mode=bucket"),
    "optimizer.name muon needs whole models": (*STAGES, "optimizer.name=muon"),
    "communication.compression bf16 needs whole models": (*STAGES, "communication.compression=bf16"),
    "optimizer.sharded true needs whole models": ("parallel.tensor=2", "optimizer.sharded=true"),
    "precision.compute fp16 needs whole models": (*STAGES, "precision.compute=fp16"),
    "a pipeline accumulates over its microbatches; leave it out, and set parallel.microbatches":
        (*STAGES, "data.gradient_accumulation_steps=2"),
    "parallel.microbatches 1 is less than parallel.pipeline 2; 1f1b needs at least as many": ("parallel.pipeline=2",),
    "doesn't divide model.layers 2; choose sizes whose product divides them":
        ("launch.ranks_per_node=4", "parallel.pipeline=4", "parallel.microbatches=4"),
    "parallel.tensor 2 doesn't divide model.feed_forward_size 23": ("parallel.tensor=2",),
    "reads precision.initial_loss_scale only with gradients in fp16": ("precision.initial_loss_scale=2",),
    "finetune squad reads clip.max_norm only with clip.mode after, before or bucket":
        ("clip.mode=none", "clip.max_norm=2"),
    "finetune squad reads optimizer.muon.ns_steps only with optimizer.name muon": ("optimizer.muon.ns_steps=3",),
    "finetune squad doesn't read data.balance; --train and --dev name the questions": ("data.balance=packed",),
    "finetune squad reads clip.divisor only with clip.mode bucket": ("clip.divisor=3",),
    "finetune squad doesn't read schedule.max_steps; squad.epochs gives the number of steps": ("schedule.max_steps=3",),
    "hardware.division closed is for pre-training only; set it to open": ("hardware.division=closed",),
    "scale_from_batch 6 is for pre-training only; set it to null": ("scale_from_batch=6",),
    "data.balence: unknown key; did you mean balance?": ("data.balence=none",),
}  # fmt: skip


@pytest.mark.parametrize(("expected", "overrides"), REFUSED.items())
def test_contradicting_settings_are_refused_by_their_names_in_fine_tuning(
    alone: str, expected: str, overrides: tuple[str, ...]
) -> None:
    even = () if "feed_forward_size" in expected else ("model.feed_forward_size=22",)
    assert expected in refused(alone, *even, *overrides)


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
    assert refused("cpu_demo").startswith("cpu_demo: finetune squad needs a system with task squad")
    assert load_finetuning("cpu_demo", ["task=squad"]).optimizer.name == "muon"


def test_fp8_is_refused_by_name_in_a_file_and_by_hand(tmp_path: Path) -> None:
    model = {**TINY_SYSTEM["model"], "hidden_size": 16, "feed_forward_size": 32}
    path = write_json(tmp_path / "fp8.json", {**ALONE, "model": model, "precision": {"compute": "fp8"}})
    assert refused(path).endswith("because nothing checks it before fine-tuning; set it to bf16")
    assert load_finetuning(path, ["precision.compute=bf16"]).precision.compute == "bf16"
    assert "--set 'precision.compute=fp8': precision.compute fp8 is for pre-training" in refused(
        write_json(tmp_path / "fp32.json", {**ALONE, "model": model}), "precision.compute=fp8"
    )
    assert "fine-tuning neither measures a format nor checks fp8; use bf16" in refused(path, "precision.compute=auto")


def test_a_command_that_pre_trains_refuses_a_file_for_fine_tuning(printed: Printed, answer: Answer) -> None:
    for words in ("train squad_cpu", "launch squad_cpu --dry-run", "plan squad_cpu", "estimate squad_a100_2gpu"):
        message = printed(*words.split(), code=2)
        assert "is for pre-training, but this system has task squad" in message
        assert f"run `bertbench finetune squad --system {words.split()[1]}`" in message
    assert json.loads(printed("config", "show", "squad_cpu"))["optimizer"]["learning_rate"] == 1e-3
    (row,) = [row for row in answer("config", "list") if row["system"] == "squad_cpu"]
    assert (row["trains"], row["global_batch_size"]) == ("finetune squad", 16)


def test_pre_training_still_requires_its_sections(tmp_path: Path) -> None:
    content = {name: section for name, section in TINY_SYSTEM.items() if name != "schedule"}
    with pytest.raises(ConfigError, match="schedule: missing; add it"):
        load_system(write_json(tmp_path / "file.json", content))
    path = write_json(tmp_path / "file.json", {name: ALONE[name] for name in ("task", "hardware", "launch")})
    for section in ("model", "data", "optimizer", "schedule"):
        assert f"{section}: missing; add it" in refused(path)
