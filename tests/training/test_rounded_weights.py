"""A run whose products read rounded copies of the weights equals one that casts the weights, bit for bit."""

from unittest import mock

import torch

from bertbench.config import System
from bertbench.distributed.world import World
from bertbench.model.arithmetic import computing
from bertbench.model.linear import Linear
from bertbench.training import gradient_path
from tests.conftest import Tiny
from tests.ranks import run_ranks
from tests.training.steps import loaded, whole_trainer

RUN = (
    "launch.ranks_per_node=1", "precision.compute=bf16", "compute.compile=default", "optimizer.name=lamb",
    "optimizer.learning_rate=0.01", "optimizer.ema_decay=0.5", "data.gradient_accumulation_steps=2",
)  # fmt: skip
WIDTHS = ("model.hidden_size=16", "model.feed_forward_size=32")  # as products in fp8 need


def test_copies_follow_steps_averages_and_restored_snapshots(tiny: Tiny) -> None:
    ((cast, rounded),) = run_ranks(1, both, tiny(*RUN))
    assert len(cast) == 5
    assert rounded == cast


def both(world: World, system: System) -> tuple[list[float], list[float]]:
    """Return the results of a run whose products cast the weights, and of one that keeps copies."""
    with mock.patch.object(torch, "compile", lambda function, **_: function):
        with mock.patch.object(gradient_path, "_round_weights", lambda *_: None):
            expected = history(world, system)
        return expected, history(world, system)


def history(world: World, system: System) -> list[float]:
    """Losses of two steps, a score of the weights' average, the next loss, and the first one from a snapshot."""
    steps = list(loaded(world, system, 3))
    with whole_trainer(system, world) as trainer:
        saved = {name: tensor.clone() for name, tensor in trainer.state().items()}

        def loss(number: int) -> float:
            return trainer.step(number, steps[number].parts).loss.item()

        found = [loss(0), loss(1)]
        with trainer.evaluating(), torch.no_grad(), computing("bf16", world.device):
            scores = trainer.model(*steps[0].parts[0].batch.inputs)
        found.append(scores.masked_lm_MV.float().max().item())
        found.append(loss(2))
        for name, tensor in trainer.state().items():
            tensor.copy_(saved[name])
        trainer.resume(0)
        torch.manual_seed(3)
        found.append(loss(0))
    return found


def test_runs_in_fp8_keep_no_copies(tiny: Tiny) -> None:
    systems = [tiny(*RUN, *WIDTHS, f"precision.compute={precision}") for precision in ("bf16", "fp8")]
    assert run_ranks(1, numbers_of_copies, *systems) == [[2 * 4, 0]], "two layers of four products"


def numbers_of_copies(world: World, *systems: System) -> list[int]:
    numbers = []
    with mock.patch.object(torch, "compile", lambda function, **_: function):
        for system in systems:
            with whole_trainer(system, world) as trainer:
                layers = [module for module in trainer.model.modules() if isinstance(module, Linear)]
                numbers.append(sum(layer.rounded is not None for layer in layers))
    return numbers
