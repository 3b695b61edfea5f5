"""Sequence parallelism: a step is one rank's step, ranks keep their tokens' activations, a mask is drawn once.

How a step is compared, and its bytes counted: test_equality.py.
"""

from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from bertbench.config import System
from bertbench.distributed.world import World
from bertbench.loading.batch import synthetic
from bertbench.loading.loader import LoadedPart
from bertbench.loading.sampler import Part
from bertbench.model import bert
from bertbench.model.attention import attention
from bertbench.model.encoder import EncoderLayer
from bertbench.model.logical_tensors import local
from bertbench.model.loops import AddNorm, apply_dropout
from bertbench.model.sequences import Sequences
from bertbench.plan.activations import layer_bytes
from bertbench.plan.step_load import Microbatch
from bertbench.training.layout_trainer import LayoutTrainer
from tests.conftest import Tiny
from tests.parallel.test_equality import SHAPE, check, trained, whole
from tests.plan.saved import batch_of_lengths
from tests.ranks import run_each, run_ranks

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


def test_ranks_that_share_tokens_take_the_steps_of_one(tiny: Tiny) -> None:
    check(tiny, list(ON_TWO_RANKS), "lamb", ranks=2, layouts=ON_TWO_RANKS)


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["lamb", "adam"])
def test_every_layout_of_shared_tokens_takes_the_steps_of_one(tiny: Tiny, optimizer: str) -> None:
    check(tiny, list(ON_FOUR_RANKS), optimizer, layouts=ON_FOUR_RANKS)


@pytest.mark.slow
def test_four_ranks_that_share_tokens_send_the_bytes_of_the_formula_in_bf16(tiny: Tiny) -> None:
    system = tiny(
        *SHAPE, "model.feed_forward_size=24", "model.attention_heads=4", "model.hidden_size=12", "parallel.tensor=4",
        "parallel.sequence=true", "launch.ranks_per_node=4", "precision.compute=bf16",
    )  # fmt: skip
    for (run,) in run_ranks(4, trained, system):
        assert run.sent == run.by_formula


class Seen(NamedTuple):
    """One rank's view of a step on 17 tokens."""

    loss: float
    rows: list[int]
    """Tokens of each dropout of hidden states, in the layers."""
    masks: list[list[bool]]
    """Those of the embeddings and of the layers' second dropout: what a rank dropped of ones."""
    seeds: list[int]
    """Of the streams that attention drew from."""


def test_each_token_is_dropped_once_and_recomputation_drops_the_same(tiny: Tiny) -> None:
    settings = ("model.feed_forward_size=22", "model.hidden_dropout=0.5", "model.attention_dropout=0.2")
    tensor, recomputed = "parallel.tensor=2", "parallel.recompute=true"
    systems = [
        (tiny(*settings, *others),) for others in (SEQUENCE, (*SEQUENCE, recomputed), (tensor,), (tensor, recomputed))
    ]
    first, second = run_each(2, dropped, *systems)
    for mine, other, rows in zip(first[::2], second[::2], (9, 17), strict=True):  # 17 tokens and a filler are 9 and 9
        assert mine.rows[:4] == [rows] * 4  # two dropouts in each of two layers
        assert mine.masks[0] == other.masks[0]  # the embeddings', of all tokens
        assert len(set(mine.seeds)) == 2, "of two layers"
        assert not set(mine.seeds) & set(other.seeds), "heads are a rank's own"
    assert all(mine != other for mine, other in zip(first[0].masks[1:], second[0].masks[1:], strict=True))
    assert first[2].masks == second[2].masks, "hidden states that both ranks hold"
    for once, again in zip(first[::2], first[1::2], strict=True):
        assert once.loss == again.loss
        assert once.masks == again.masks[:5]


def dropped(world: World, system: System) -> Seen:
    trainer = LayoutTrainer(system, world, 11, 0)
    seen = Seen(0.0, [], [], [])

    def see(hidden: Tensor, rate: float) -> None:
        state = torch.get_rng_state()
        seen.masks.append((apply_dropout(torch.ones_like(hidden), rate) > 0).flatten().tolist())
        torch.set_rng_state(state)

    def spy(hidden: Tensor, rate: float) -> Tensor:
        see(hidden, rate)
        return apply_dropout(hidden, rate)

    add_norm = AddNorm.forward

    def spy_norm(norm: AddNorm, hidden: Tensor, residual: Tensor, rate: float) -> Tensor:
        see(hidden, rate)
        seen.rows.append(len(hidden))
        return add_norm(norm, hidden, residual, rate)

    def spy_attention(qkv: Tensor, sequences: Sequences, rate: float) -> Tensor:
        seen.seeds.append(torch.initial_seed())
        return attention(qkv, sequences, rate)

    for module in trainer.model.modules():
        if isinstance(module, EncoderLayer):
            module.attention = spy_attention
    batch = synthetic(1, 17, system.model.vocab_size, torch.Generator().manual_seed(1))
    parts = [LoadedPart(Part(np.arange(1), 0.1, 0.1), batch)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bert, "apply_dropout", spy)
        patch.setattr(AddNorm, "forward", spy_norm)
        loss = world.sum(trainer.step(0, parts).loss).item()
    whole(trainer.state())  # what both ranks hold is the same, to the bit
    return seen._replace(loss=loss)


LENGTHS = np.array([200, 200])


@pytest.mark.slow
def test_a_layer_keeps_as_many_bytes_as_the_plan_says(tiny: Tiny) -> None:
    shape = (*SEQUENCE, "model.feed_forward_size=22", "model.hidden_dropout=0.1", "model.max_positions=200")
    systems = [(tiny(*shape, f"model.layers={layers}"),) for layers in (1, 2)]
    with_one, with_two = run_each(2, kept, *systems)[0]
    counted = layer_bytes(systems[0][0], Microbatch.of_lengths(LENGTHS))
    assert with_two - with_one == pytest.approx(counted, rel=1e-4)


def kept(world: World, system: System) -> int:
    parts = [LoadedPart(Part(np.arange(2), 0.1, 0.1), batch_of_lengths(LENGTHS))]
    trainer = LayoutTrainer(system, world, 11, 0)
    storages: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = local(tensor).untyped_storage()
        storages[storage._cdata] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        trainer.step(0, parts)
    for parameter in trainer.parameters:
        storages.pop(local(parameter.detach()).untyped_storage()._cdata, None)
    return sum(storage.nbytes() for storage in storages.values())
