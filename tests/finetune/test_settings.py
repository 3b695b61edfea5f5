"""No setting of fine-tuning is ignored: each changed setting changes the run."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bertbench.common.progress import Progress
from bertbench.config import System
from bertbench.distributed.world import World
from bertbench.finetune.output import reserve_folder
from bertbench.finetune.run import finetune
from bertbench.finetune.squad_inputs import Inputs
from tests.conftest import Tiny
from tests.finetune.conftest import content_of_lines
from tests.ranks import run_each

Change = tuple[tuple[str, ...], str]
"""What the setting needs, and the change."""
MUON = ("optimizer.name=muon",)
BUCKETS = ("clip.mode=bucket", "clip.max_norm=0.1")
PARTS = ("clip.mode=before", "clip.max_norm=0.1", "data.gradient_accumulation_steps=2")
WARM = ("schedule.warmup_steps=2",)
FP16 = ("precision.compute=fp16",)
CHANGES: tuple[Change, ...] = (
    ((), "data.global_batch_size=4"),
    (("model.hidden_dropout=0.3",), "data.gradient_accumulation_steps=2"),
    ((), "optimizer.name=lamb"),
    ((), "optimizer.name=muon"),
    ((), "optimizer.learning_rate=0.01"),
    ((), "schedule.warmup_steps=3"),
    ((), "squad.warmup_fraction=0.7"),
    ((), "optimizer.beta1=0.5"),
    ((), "optimizer.beta2=0.5"),
    ((), "optimizer.epsilon=0.1"),
    ((), "optimizer.weight_decay=0.5"),
    ((), "clip.mode=none"),
    ((), "clip.mode=before"),
    ((), "clip.mode=bucket"),
    ((), "clip.max_norm=0.1"),
    (BUCKETS, "clip.divisor=50"),
    (PARTS, "clip.parts=each"),
    ((), "optimizer.ema_decay=0.9"),
    ((), "schedule.decay_steps=4"),
    ((), "schedule.end_learning_rate=0.01"),
    ((), "schedule.first_step=1"),
    (WARM, "schedule.decay_from=warmup_steps"),
    (WARM, "schedule.start_warmup_step=-1"),
    (MUON, "optimizer.muon.momentum=0.1"),
    ((), "optimizer.sharded=true"),
    ((), "communication.compression=fp16"),
    ((), "communication.compression=bf16"),
    ((), "communication.bucket_mb=0.01"),
    ((), "precision.compute=bf16"),
    ((), "precision.compute=fp16"),
    (FP16, "precision.initial_loss_scale=2.0"),
    ((), "parallel.fully_shard=true"),
    ((), "parallel.tensor=2"),
)


def evidence(world: World, system: System, inputs: Inputs, out: Path) -> dict[str, Any]:
    """Return the effects of a fine-tuning, without output that only repeats its configuration."""
    files = reserve_folder(out) if world.leads else None
    epochs = finetune(system, world, 7, inputs, files, Progress(False))
    if not files:
        return {}
    rows = content_of_lines(files.metrics)
    communication = json.loads((files.folder / "communication.json").read_text())
    return {
        "steps": [{name: row[name] for name in row if not name.endswith("_ms")} for row in rows],
        "epochs": epochs,
        "built": {name: communication[name] for name in ("bucket_elements", "optimizer_arithmetic", "transport")},
    }


def evidences(tiny: Tiny, inputs: Callable[..., Inputs], folder: Path, *settings: tuple[str, ...]) -> list[Any]:
    runs = []
    for number, overrides in enumerate(settings):
        system = tiny("model.feed_forward_size=22", *overrides)
        runs.append((system, inputs(system), folder / str(number)))
    return run_each(2, evidence, *runs)[0]


@pytest.mark.slow
def test_every_changed_setting_changes_the_run(system: Tiny, inputs: Callable[..., Inputs], tmp_path: Path) -> None:
    needs = list(dict.fromkeys(needed for needed, _ in CHANGES))
    changed = [(*needed, change) for needed, change in CHANGES if change not in needed]
    did = evidences(system, inputs, tmp_path, *needs, *changed)
    before = dict(zip(needs, did, strict=False))
    unchanged = [
        change for (needed, change), after in zip(CHANGES, did[len(needs) :], strict=True) if after == before[needed]
    ]
    assert unchanged == []


def test_steps_in_half_precision_equal_those_in_fp32_except_for_rounding(
    system: Tiny, inputs: Callable[..., Inputs], tmp_path: Path
) -> None:
    fp32, bf16, fp16 = evidences(system, inputs, tmp_path, (), ("precision.compute=bf16",), FP16)
    losses = [step["loss"] for step in fp32["steps"]]
    for half in (bf16, fp16):
        assert [step["loss"] for step in half["steps"]] == pytest.approx(losses, rel=0.02)
        assert [step["loss"] for step in half["steps"]] != losses
    assert {step["loss_scale"] for step in fp16["steps"]} == {2 * 4096.0}
    assert "loss_scale" not in bf16["steps"][0]


def test_a_loss_scale_that_overflows_skips_the_step(
    system: Tiny, inputs: Callable[..., Inputs], tmp_path: Path
) -> None:
    (fp16,) = evidences(system, inputs, tmp_path, (*FP16, "precision.initial_loss_scale=1e9"))
    assert [step["loss_scale"] for step in fp16["steps"]][:3] == [2e9, 1e9, 5e8]
    assert fp16["steps"][0]["grad_norm"] is None
