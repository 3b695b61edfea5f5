"""Each way to sum a gradient over real gloo ranks, against the plain sum."""

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest import mock

import pytest
import torch
from torch import Tensor, distributed, nn

from bertbench.config.optimizer import Communication
from bertbench.distributed.world import World
from bertbench.gradients.gradient_sum import bytes_per_step
from tests.gradients.reducing import reducer_of
from tests.ranks import run_ranks

WAYS = {
    "none": Communication(),
    "fp16": Communication(compression="fp16"),
    "bf16": Communication(compression="bf16"),
    "powersgd": Communication(compression="powersgd", powersgd_rank=3, powersgd_start_step=2),
}
TOLERANCES = {
    # of the largest element: fp16 keeps 11 bits, bf16 8, and a sum of four rounds four times
    "none": 1e-6,
    "fp16": 2e-3,
    "bf16": 2e-2,
    "powersgd": 1e-3,
}
SHAPES = ((19, 23), (19,), (29, 19), (29,))
ELEMENTS = 19 * 23 + 19 + 29 * 19 + 29
RANKS = 4
STEPS = 3  # PowerSGD begins with the third


class Summed(NamedTuple):
    """A rank's last step: its own gradient, the sum that it received, and the bytes that it contributed."""

    own: list[float]
    got: list[float]
    sent_bytes: int


@contextmanager
def contributed_bytes() -> Iterator[list[int]]:
    """Record the bytes of every buffer that this rank gives to a sum, including those from PowerSGD's threads."""
    sizes: list[int] = []

    all_reduce = distributed.all_reduce

    def noted(buffer: Tensor, *arguments: Any, **options: Any) -> Any:
        sizes.append(buffer.nbytes)
        return all_reduce(buffer, *arguments, **options)

    with mock.patch.object(distributed, "all_reduce", noted):
        yield sizes


def summed_each_way(world: World) -> dict[str, Summed]:
    """Take steps by each way."""
    return {name: summed_by(options, world) for name, options in WAYS.items()}


def summed_by(options: Communication, world: World) -> Summed:
    model = nn.Sequential(nn.Linear(23, 19), nn.Linear(19, 29))
    reducer = reducer_of(model, world.size, 1000 / 2**20, options=options)
    generator = torch.Generator().manual_seed(world.rank)
    for _ in range(STEPS):
        reducer.drop()
        # multiples of one input: gradient matrices have at most rank 2, so PowerSGD's rank 3 finds them exactly
        loss = model(torch.randn(2, 1, generator=generator) * torch.linspace(-1, 1, 23)).square().sum()
        own = torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)
        with contributed_bytes() as sizes:
            loss.backward()
            reducer.finish()
    got = [parameter.grad for parameter in model.parameters()]
    return Summed(flat(own), flat(got), sum(sizes))


def flat(tensors: Iterable[Tensor]) -> list[float]:
    numbers: list[float] = torch.cat([tensor.view(-1) for tensor in tensors]).tolist()
    return numbers


@pytest.fixture(scope="module")
def summed() -> dict[str, list[Summed]]:
    """For each way, return the state of each rank."""
    ranks = run_ranks(RANKS, summed_each_way)
    return {name: [answer[name] for answer in ranks] for name in WAYS}


@pytest.mark.parametrize("way", WAYS)
def test_every_rank_gets_the_same_sum_of_all_gradients(summed: dict[str, list[Summed]], way: str) -> None:
    ranks = summed[way]
    expected = torch.tensor([rank.own for rank in ranks]).sum(0)
    got = torch.tensor(ranks[0].got)
    tolerance = TOLERANCES[way] * expected.abs().max().item()
    torch.testing.assert_close(got, expected, atol=tolerance, rtol=0)
    assert all(rank.got == ranks[0].got for rank in ranks)


@pytest.mark.parametrize("way", WAYS)
def test_a_rank_contributes_as_many_bytes_as_the_formula_says(summed: dict[str, list[Summed]], way: str) -> None:
    expected = bytes_per_step(WAYS[way], SHAPES, list(map(math.prod, SHAPES)), RANKS)
    assert {rank.sent_bytes for rank in summed[way]} == {expected}


def test_an_uncompressed_sum_takes_4_bytes_per_element(summed: dict[str, list[Summed]]) -> None:
    assert summed["none"][0].sent_bytes == 4 * ELEMENTS


def test_powersgd_sends_factors_of_the_matrices_for_which_that_saves_bytes() -> None:
    # 100 x 50 at rank 4: 4 x 150 elements in place of 5,000; 6 x 5: its factors would be more than half of it
    options = Communication(compression="powersgd", powersgd_rank=4)
    assert bytes_per_step(options, [(100, 50), (6, 5), (7,)], [], 1) == 4 * (600 + 30 + 7)
