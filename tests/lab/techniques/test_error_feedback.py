"""Compressed sums that carry their errors, int8 and top-k, on real gloo ranks."""

import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import distributed, nn

from bertbench.distributed.world import World
from lab.techniques.int8 import Int8Sum, decoded_rows, encoded, sent_bytes
from lab.techniques.topk import TopKSum
from tests.gradients.reducing import reducer_of
from tests.ranks import run_ranks
from tests.watching import Watching

SUMS = {"int8": Int8Sum, "topk": partial(TopKSum, 0.05)}
STEPS = 6
SIZE = 29 * 67


def bytes_on_the_link(function: Any, arguments: Any, ranks: int) -> int:
    """Bytes that a rank sends over its link: of an all-to-all all but its own slice, an all-gather R - 1 times."""
    name = function._schema.name
    assert name != "c10d::allreduce_"
    if name == "c10d::alltoall_base_":
        return arguments[1].nbytes * (ranks - 1) // ranks
    return arguments[1].nbytes * (ranks - 1) if name == "c10d::_allgather_base_" else 0


def steps_of(world: World, name: str) -> tuple[list[float], list[float], list[float], int, int]:
    """Return totals over some steps: applied, ideal, the remaining error, and the bytes sent and by the formula."""
    model = nn.Linear(29, 67, bias=False)  # one bucket of 1,943: no multiple of 3 ranks or of 512
    reducer = reducer_of(model, world.size, way=SUMS[name]())
    generator = torch.Generator().manual_seed(world.rank)
    applied, true = torch.zeros(SIZE), torch.zeros(SIZE)
    for step in range(-2, STEPS):
        if step == 0:
            reducer.reset()
        reducer.drop()
        loss = model(torch.randn(5, 29, generator=generator)).square().sum()
        (own,) = torch.autograd.grad(loss, model.weight, retain_graph=True)
        sent = list[int]()
        with Watching(lambda *operation, sent=sent: sent.append(bytes_on_the_link(*operation, world.size))):
            loss.backward()
            reducer.finish()
        if step >= 0:
            applied += model.weight.grad.view(-1)
            true += world.sum(own.reshape(-1))
    left = world.sum(reducer.state()[f"error.{world.rank}.0"].clone())
    if name == "int8":
        slices = [torch.empty(len(left) // world.size) for _ in range(world.size)]
        distributed.all_gather(slices, reducer.state()[f"slice_error.{world.rank}.0"])
        left = left + torch.cat(slices)
    handed = reducer.bytes_per_step()
    # top-k's all-gather forwards every rank's contribution; int8's all-to-all and all-gather send as much as a ring
    by_formula = (world.size - 1) * (handed if name == "topk" else 2 * handed // world.size)
    return applied.tolist(), true.tolist(), left[:SIZE].tolist(), sum(sent), by_formula


@pytest.mark.parametrize("name", SUMS)
def test_applied_and_carried_parts_add_up_to_the_sum_for_the_bytes_of_the_formula(name: str) -> None:
    answers = run_ranks(3, steps_of, name)
    first_applied = answers[0][0]
    for applied, true, left, sent, by_formula in answers:
        assert applied == first_applied  # all ranks alike, to the bit
        assert [a + e for a, e in zip(applied, left, strict=True)] == pytest.approx(true, rel=1e-5, abs=1e-3)
        assert any(abs(error) > 0.01 for error in left)
        assert sent == by_formula


def test_eight_bits_are_a_quarter_of_the_bytes() -> None:
    assert sent_bytes(1_000_001, 4) == 4 * (250_001 + 4 * 489) < 1.01 * 1_000_001


def test_a_block_is_rounded_to_127ths_of_its_largest_element() -> None:
    row = torch.zeros(2, 600)
    row[0, :4] = torch.tensor([127.0, -63.4, 0.4, 0.6])
    row[0, 512:514] = torch.tensor([-2.54, 1.0])  # another block: scale 0.02
    got = decoded_rows(encoded(row), 600)
    assert encoded(row).shape == (2, 600 + 2 * 4)
    assert got[0, :4].tolist() == [127, -63, 0, 1]
    assert got[0, 512:514].tolist() == pytest.approx([-2.54, 1.0], abs=1e-6)
    assert not got[1].any()
    row[1, 3] = math.inf
    assert not decoded_rows(encoded(row), 600)[1, :512].isfinite().any()


@pytest.mark.parametrize("name", SUMS)
def test_a_gradient_that_is_not_finite_on_one_rank_becomes_so_on_every_rank(name: str) -> None:
    assert run_ranks(2, broken_gradient, name) == [True, True]


def broken_gradient(world: World, name: str) -> bool:
    model = nn.Linear(3, 5)
    reducer = reducer_of(model, world.size, way=SUMS[name]())
    model(torch.full((1, 3), math.nan if world.rank else 1.0)).sum().backward()
    reducer.finish()
    return bool(model.weight.grad.isnan().any())
