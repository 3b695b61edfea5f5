"""Sequence parallelism: a step is one rank's step, ranks keep their tokens' activations, a mask is drawn once.

How a step is compared, and its bytes counted: test_equality.py.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
import torch

from bertbench.config import System
from bertbench.distributed.world import World
from bertbench.dry_run.activations import layer_keeps
from bertbench.dry_run.fake import synthetic_batch
from bertbench.loading.batch import synthetic
from bertbench.loading.loader import LoadedPart
from bertbench.loading.sampler import Part
from bertbench.model.bert import Embeddings
from bertbench.model.dropout import apply_dropout
from bertbench.model.encoder import EncoderLayer
from bertbench.optim.state import local
from bertbench.training.layout_trainer import LayoutTrainer
from tests.parallel.test_equality import SHAPE, check, trained, whole
from tests.ranks import run_ranks

SEQUENCE = ("parallel.tensor=2", "parallel.sequence=true")
ON_TWO_RANKS = {"1x2x1 accumulated": (*SEQUENCE, "data.gradient_accumulation_steps=2")}
ON_FOUR_RANKS = {
    "2x2x1 recomputed": (*SEQUENCE, "parallel.recompute=true"),
    "1x2x2": (*SEQUENCE, "parallel.pipeline=2", "parallel.microbatches=3"),
    "1x2x2 interleaved": (
        *SEQUENCE, "parallel.pipeline=2", "parallel.virtual_stages=2", "parallel.schedule=interleaved",
        "parallel.microbatches=4",
    ),
}  # fmt: skip


def test_ranks_that_share_tokens_take_the_steps_of_one(tiny: Callable[..., System]) -> None:
    check(tiny, list(ON_TWO_RANKS), "lamb", ranks=2, layouts=ON_TWO_RANKS)


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["lamb", "adam"])
def test_every_layout_of_shared_tokens_takes_the_steps_of_one(tiny: Callable[..., System], optimizer: str) -> None:
    check(tiny, list(ON_FOUR_RANKS), optimizer, layouts=ON_FOUR_RANKS)


@pytest.mark.slow
def test_four_ranks_that_share_tokens_send_in_bf16_what_the_formula_says(tiny: Callable[..., System]) -> None:
    system = tiny(
        *SHAPE, "model.feed_forward_size=24", "model.attention_heads=4", "model.hidden_size=12", "parallel.tensor=4",
        "parallel.sequence=true", "launch.ranks_per_node=4", "precision.compute=bf16",
    )  # fmt: skip
    for (run,) in run_ranks(4, trained, system):
        assert run.sent == run.by_formula


class Seen(NamedTuple):
    """What a rank saw of one step on 17 tokens."""

    loss: float
    rows: list[int]
    """Tokens of each dropout of hidden states, in the layers."""
    masks: list[list[bool]]
    """Those of the embeddings and of the layers' second dropout: what a rank dropped of ones."""


def test_each_token_is_dropped_once_and_recomputation_drops_the_same(tiny: Callable[..., System]) -> None:
    settings = (*SEQUENCE, "model.feed_forward_size=22", "model.hidden_dropout=0.5", "model.attention_dropout=0.2")
    systems = [tiny(*settings), tiny(*settings, "parallel.recompute=true")]
    (first, again), (second, _) = run_ranks(2, dropped, *systems)
    assert first.rows[:4] == [9] * 4  # two dropouts in each of two layers; 17 tokens and a filler are 9 and 9
    assert first.masks[0] == second.masks[0]  # the embeddings', of all tokens
    assert all(mine != other for mine, other in zip(first.masks[1:], second.masks[1:], strict=True))
    assert first.loss == again.loss
    assert first.masks == again.masks[:5]


def dropped(world: World, *systems: System) -> list[Seen]:
    return [_dropped(world, system) for system in systems]


def _dropped(world: World, system: System) -> Seen:
    trainer = LayoutTrainer(system, world, 11, 0)
    rows: list[int] = []
    masks: list[list[bool]] = []

    def spy(hidden: torch.Tensor, rate: float, residual: torch.Tensor | None = None) -> torch.Tensor:
        state = torch.get_rng_state()
        masks.append((apply_dropout(torch.ones_like(hidden), rate) > 0).flatten().tolist())
        torch.set_rng_state(state)
        if residual is not None:
            rows.append(len(hidden))
        return apply_dropout(hidden, rate, residual)

    for module in trainer.model.modules():
        if isinstance(module, EncoderLayer | Embeddings):
            module.apply_dropout = spy
    batch = synthetic(1, 17, system.model.vocab_size, torch.Generator().manual_seed(1))
    parts = [LoadedPart(Part(np.arange(1), 0.1, 0.1), batch)]
    loss = world.sum(trainer.step(0, parts).loss).item()
    whole(trainer.state())  # what both ranks hold is the same, to the bit
    return Seen(loss, rows, masks)


LENGTHS = (160, 96)  # at which the plan measures; between them it is 5 % off on a CPU, whose attention has blocks


@pytest.mark.slow
def test_a_layer_keeps_as_many_bytes_as_the_plan_says(tiny: Callable[..., System]) -> None:
    shape = (*SEQUENCE, "model.feed_forward_size=22", "model.hidden_dropout=0.1", "model.max_positions=200")
    systems = [tiny(*shape, f"model.layers={layers}") for layers in (1, 2)]
    one, two = run_ranks(2, kept, *systems)[0]
    formula = layer_keeps(systems[0], 2, sequence=True)
    assert two - one == pytest.approx(formula.bytes(sum(LENGTHS), sum(n * n for n in LENGTHS)), rel=1e-4)
    assert formula.token < 0.85 * layer_keeps(systems[0], 2, sequence=False).token


def kept(world: World, *systems: System) -> list[int]:
    parts = [LoadedPart(Part(np.arange(2), 0.1, 0.1), synthetic_batch(np.array(LENGTHS)))]
    return [_kept(LayoutTrainer(system, world, 11, 0), parts) for system in systems]


def _kept(trainer: LayoutTrainer, parts: list[LoadedPart]) -> int:
    storages: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = local(tensor).untyped_storage()
        storages[storage._cdata] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        trainer._accumulate(parts)
    for parameter in trainer.parameters:
        storages.pop(local(parameter.detach()).untyped_storage()._cdata, None)
    return sum(storage.nbytes() for storage in storages.values())
