"""Dropout under tensor parallelism: what ranks share they drop alike, what is their own they don't."""

from collections.abc import Callable

import pytest
import torch

from bertbench.config import System
from bertbench.distributed.world import World
from bertbench.loading.loader import Loader
from bertbench.model.attention import attention
from bertbench.model.dropout import apply_dropout
from bertbench.model.encoder import EncoderLayer
from bertbench.model.sequences import Sequences
from bertbench.training.build import make_sampler, make_trainer
from bertbench.training.inputs import open_data
from tests.parallel.test_equality import whole
from tests.ranks import run_ranks


def losses_and_seeds(world: World, *systems: System) -> list[tuple[list[float], list[int], list[int]]]:
    """Losses of two steps, and the seeds that attention and hidden states drew from in the second."""
    answers = []
    for system in systems:
        training, _ = open_data(system)
        sampler = make_sampler(system, training, 11)
        trainer = make_trainer(system, world, 11, sampler)
        of_attention, of_hidden = [], []

        def spy_attention(
            qkv: torch.Tensor, sequences: Sequences, rate: float, seeds: list[int] = of_attention
        ) -> torch.Tensor:
            seeds.append(torch.initial_seed())
            return attention(qkv, sequences, rate)

        def spy_dropout(
            hidden: torch.Tensor, rate: float, residual: torch.Tensor | None = None, seeds: list[int] = of_hidden
        ) -> torch.Tensor:
            seeds.append(torch.initial_seed())
            return apply_dropout(hidden, rate, residual)

        steps = Loader(sampler, 0, world.device).steps(range(2))
        losses = []
        for number, step in enumerate(steps):
            if number == 1:
                for layer in trainer.model.modules():
                    if isinstance(layer, EncoderLayer):
                        layer.attention, layer.apply_dropout = spy_attention, spy_dropout
            losses.append(world.sum(trainer.step(number, step.parts).loss).item())
        whole(trainer.state())  # what both ranks hold is still the same, to the bit
        answers.append((losses, of_attention, of_hidden))
        trainer.close()
    return answers


@pytest.mark.slow
def test_ranks_share_the_stream_of_hidden_states_and_recomputation_repeats_both(tiny: Callable[..., System]) -> None:
    settings = ("model.feed_forward_size=22", "parallel.tensor=2", "model.hidden_dropout=0.2")
    with_attention = (*settings, "model.attention_dropout=0.2")
    systems = [tiny(*with_attention), tiny(*with_attention, "parallel.recompute=true"), tiny(*settings)]
    first, second = run_ranks(2, losses_and_seeds, *systems)
    (losses, attention, hidden), (again, _, _), (without, _, _) = first
    assert losses == again  # recomputed with the same draws
    assert losses != without
    (_, other_attention, other_hidden), _, _ = second
    assert hidden == other_hidden
    assert len(set(hidden)) == 1
    assert not set(attention) & set(other_attention)
    assert len(set(attention)) == len(attention) == 2  # layers
