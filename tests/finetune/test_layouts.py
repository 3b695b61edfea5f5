"""Strict semantics of fine-tuning: on any layout, a step is the step of one rank, but for rounding; dropout is 0."""

from collections.abc import Callable
from typing import Any

import pytest

from bertbench.checkpoint.weights_file import Weights
from bertbench.common.progress import Progress
from bertbench.config import System
from bertbench.distributed.world import World
from bertbench.finetune.output import reserve
from bertbench.finetune.run import finetune
from bertbench.finetune.squad_inputs import Inputs
from tests.conftest import Tiny
from tests.finetune.conftest import content_of_lines
from tests.ranks import run_each

# as tests/parallel/test_equality.py: fp32 sums in another order, over 20 steps
LOSS = 1e-4
SHAPE = ("finetune.epochs=4", "finetune.warmup_steps=3", "finetune.learning_rate=0.003", "model.feed_forward_size=22")
"""21 windows in batches of 5 are 5 steps an epoch, of which the last has one: most ranks and parts have none of it."""


def course(world: World, system: System, inputs: Inputs, out: Any) -> dict[str, Any]:
    """Return each step's loss and gradient norm, each epoch's scores, and the trained weights."""
    files = reserve(out) if world.leads else None
    epochs = finetune(system, world, 7, inputs, files, Progress(False))
    if not files:
        return {"epochs": epochs}
    steps = content_of_lines(files.metrics)
    return {
        "loss": [step["loss"] for step in steps],
        "norm": [step["grad_norm"] for step in steps],
        "epochs": epochs,
        "weights": {name: tensor.numpy() for name, tensor in Weights.open(files.weights).read().items()},
    }


def courses(tiny: Tiny, inputs: Callable[..., Inputs], tmp_path: Any, ranks: int, *settings: tuple[str, ...]) -> Any:
    runs = []
    for number, overrides in enumerate(settings):
        system = tiny(f"launch.ranks_per_node={ranks}", *SHAPE, *overrides)
        runs.append((system, inputs(system), tmp_path / f"{ranks}_{number}"))
    return run_each(ranks, course, *runs)


def check_equal(split: dict[str, Any], alone: dict[str, Any]) -> None:
    assert len(alone["loss"]) == 20
    assert alone["loss"][-2] < alone["loss"][0]
    assert split["loss"] == pytest.approx(alone["loss"], abs=LOSS)
    assert split["norm"] == pytest.approx(alone["norm"], rel=1e-3)
    for ours, expected in zip(split["epochs"], alone["epochs"], strict=True):
        assert ours == pytest.approx(expected, abs=LOSS)
    assert split["weights"].keys() == alone["weights"].keys()
    for name, weight in alone["weights"].items():
        assert split["weights"][name] == pytest.approx(weight, abs=1e-3), name


LAYOUTS = {
    "two ranks": (2, ()),
    "accumulated": (2, ("finetune.gradient_accumulation_steps=3",)),
    "two stages": (2, ("parallel.pipeline=2", "parallel.microbatches=2")),
    "two tensor ranks": (2, ("parallel.tensor=2",)),
    "sharded": (2, ("parallel.fully_shard=true",)),
    "two tensor ranks that share tokens": (2, ("parallel.tensor=2", "parallel.sequence=true")),
    "sliced": (2, ("optimizer.sharded=true", "finetune.optimizer=lamb")),
    "two pipelines of two stages": (4, ("parallel.pipeline=2", "parallel.microbatches=3", "parallel.schedule=gpipe")),
    "tensor ranks in stages": (4, ("parallel.tensor=2", "parallel.pipeline=2", "parallel.microbatches=2")),
}


def test_losses_of_every_layout_equal_those_of_one_rank(
    system: Tiny, inputs: Callable[..., Inputs], tmp_path: Any
) -> None:
    lamb = [words for _, words in LAYOUTS.values() if "finetune.optimizer=lamb" in words]
    ((adam_alone, lamb_alone),) = courses(system, inputs, tmp_path, 1, (), ("finetune.optimizer=lamb",))
    for ranks in (2, 4):
        chosen = [words for count, words in LAYOUTS.values() if count == ranks]
        results, *others = courses(system, inputs, tmp_path, ranks, *chosen)
        for words, split in zip(chosen, results, strict=True):
            check_equal(split, lamb_alone if words in lamb else adam_alone)
        for answers in others:
            assert [answer["epochs"] for answer in answers] == [split["epochs"] for split in results]
