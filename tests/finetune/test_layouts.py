"""In fine-tuning on any layout, a step equals the step of one rank, except for rounding; dropout is 0."""

from collections.abc import Callable
from typing import Any

import pytest

from bertbench.checkpoint.weights_file import Weights
from bertbench.common.progress import Progress
from bertbench.config import System
from bertbench.distributed.world import World
from bertbench.finetune.output import reserve_folder
from bertbench.finetune.run import finetune
from bertbench.finetune.squad_inputs import Inputs
from bertbench.runs.trace_reader import read_trace_file
from tests.conftest import Tiny
from tests.finetune.conftest import content_of_lines
from tests.ranks import run_each

# fp32 sums in another order, over 10 steps; 1e-6 is the most that was seen
LOSS = 5e-6
# a gradient that is 0 but for rounding (of the key biases) moves Adam's weights by up to the rate
WEIGHT = 1e-3
SHAPE = ("squad.epochs=2", "schedule.warmup_steps=3", "optimizer.learning_rate=0.003", "model.feed_forward_size=22")
"""21 windows in batches of 5 are 5 steps an epoch, of which the last has one: most ranks and parts have none of it."""


def course(world: World, system: System, inputs: Inputs, out: Any) -> dict[str, Any]:
    """Return each step's loss and gradient norm, each epoch's scores, and the trained weights."""
    files = reserve_folder(out) if world.leads else None
    epochs = finetune(system, world, 7, inputs, files, Progress(False))
    if not files:
        return {"epochs": epochs}
    steps = content_of_lines(files.metrics)
    trace = read_trace_file(files.trace)
    bubbles = [phases.bubble(trace.stages) for phases in trace.phases]
    return {
        "loss": [step["loss"] for step in steps],
        "norm": [step["grad_norm"] for step in steps],
        "bubbles": [bubble for bubble in bubbles if bubble is not None],
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
    assert len(alone["loss"]) == 10
    assert alone["loss"][-2] < alone["loss"][0]
    assert split["loss"] == pytest.approx(alone["loss"], abs=LOSS)
    assert split["norm"] == pytest.approx(alone["norm"], rel=1e-5)
    for ours, expected in zip(split["epochs"], alone["epochs"], strict=True):
        assert ours == pytest.approx(expected, abs=LOSS)
    assert split["weights"].keys() == alone["weights"].keys()
    for name, weight in alone["weights"].items():
        assert split["weights"][name] == pytest.approx(weight, abs=WEIGHT), name


STAGES = ("parallel.pipeline=2", "parallel.microbatches=2")
LAMB = ("optimizer.name=lamb",)


def check_layouts(
    tiny: Tiny, inputs: Callable[..., Inputs], tmp_path: Any, ranks: int, *layouts: tuple[str, ...]
) -> None:
    """Compare runs on that many ranks with one rank's, with Adam, or with LAMB if the layout uses it."""
    optimizers = list(dict.fromkeys(LAMB if LAMB[0] in layout else () for layout in layouts))
    alone = dict(zip(optimizers, courses(tiny, inputs, tmp_path, 1, *optimizers)[0], strict=True))
    results, *others = courses(tiny, inputs, tmp_path, ranks, *layouts)
    for layout, split in zip(layouts, results, strict=True):
        check_equal(split, alone[LAMB if LAMB[0] in layout else ()])
        assert all(0 < bubble < 1 for bubble in split["bubbles"])
        assert bool(split["bubbles"]) == (STAGES[0] in layout), "pipelines measure theirs, other layouts have none"
    for answers in others:
        assert [answer["epochs"] for answer in answers] == [split["epochs"] for split in results]


def test_losses_on_two_stages_and_tensor_ranks_equal_one_ranks(
    system: Tiny, inputs: Callable[..., Inputs], tmp_path: Any
) -> None:
    check_layouts(system, inputs, tmp_path, 2, STAGES, ("parallel.tensor=2",))


@pytest.mark.slow
def test_losses_of_every_other_layout_equal_one_ranks(
    system: Tiny, inputs: Callable[..., Inputs], tmp_path: Any
) -> None:
    two_ranks = (
        ("data.gradient_accumulation_steps=3",),
        ("data.gradient_accumulation_steps=3", "parallel.tensor=2", "parallel.sequence=true"),
        ("parallel.fully_shard=true", "parallel.recompute=true"),
        ("optimizer.sharded=true",),
        ("optimizer.sharded=true", *LAMB),
        (*STAGES, *LAMB),
    )
    check_layouts(system, inputs, tmp_path, 2, *two_ranks)
    four_ranks = (
        STAGES,
        ("parallel.pipeline=2", "parallel.microbatches=3", "parallel.schedule=gpipe"),
        ("parallel.tensor=2", *STAGES, *LAMB),
        ("parallel.tensor=2",),
    )
    check_layouts(system, inputs, tmp_path / "four", 4, *four_ranks)
