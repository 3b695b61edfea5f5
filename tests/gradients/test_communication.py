"""Each way to sum a gradient over real gloo ranks, against the plain sum."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest import mock

import pytest
import torch
from torch import Tensor, distributed, nn

from bertbench.config.optimizer import Compression
from bertbench.distributed.world import World
from bertbench.gradients.exchange import Exchange
from bertbench.gradients.gradient_sum import ELEMENT_SUMS, GradientSum
from tests.gradients.reducing import reducer_of
from tests.ranks import run_ranks

TOLERANCES: dict[Compression, float] = {
    # of the largest element: fp16 keeps 11 bits, bf16 8, and a sum of four rounds four times
    "none": 1e-6,
    "fp16": 2e-3,
    "bf16": 2e-2,
}
ELEMENTS = 19 * 23 + 19 + 29 * 19 + 29
RANKS = 4
STEPS = 2


class Summed(NamedTuple):
    """A rank's last step: its own gradient, the sum that it received, the bytes that it contributed and stated."""

    own: list[float]
    got: list[float]
    sent_bytes: int
    stated_bytes: int


@contextmanager
def contributed_bytes() -> Iterator[list[int]]:
    """Record the bytes of every buffer that this rank gives to a sum, including those from other threads."""
    sizes: list[int] = []

    all_reduce = distributed.all_reduce

    def noted(buffer: Tensor, *arguments: Any, **options: Any) -> Any:
        sizes.append(buffer.nbytes)
        return all_reduce(buffer, *arguments, **options)

    with mock.patch.object(distributed, "all_reduce", noted):
        yield sizes


def summed_each_way(world: World) -> dict[Compression, Summed]:
    """Take steps by each compression."""
    return {compression: summed_by(ELEMENT_SUMS[compression](Exchange()), world) for compression in TOLERANCES}


def summed_by(gradient_sum: GradientSum, world: World, steps: int = STEPS) -> Summed:
    """Take steps with gradients that are summed in this way."""
    model = nn.Sequential(nn.Linear(23, 19), nn.Linear(19, 29))
    reducer = reducer_of(model, world.size, 1000 / 2**20, way=gradient_sum)
    generator = torch.Generator().manual_seed(world.rank)
    for _ in range(steps):
        reducer.drop()
        # multiples of one input: gradient matrices have at most rank 2
        loss = model(torch.randn(2, 1, generator=generator) * torch.linspace(-1, 1, 23)).square().sum()
        own = torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)
        with contributed_bytes() as sizes:
            loss.backward()
            reducer.finish()
    got = [parameter.grad for parameter in model.parameters()]
    return Summed(flat(own), flat(got), sum(sizes), reducer.bytes_per_step())


def assert_all_have_the_sum(ranks: list[Summed], tolerance: float) -> None:
    """Check that all ranks received the same sum, within `tolerance` of the largest element."""
    expected = torch.tensor([rank.own for rank in ranks]).sum(0)
    got = torch.tensor(ranks[0].got)
    torch.testing.assert_close(got, expected, atol=tolerance * expected.abs().max().item(), rtol=0)
    assert all(rank.got == ranks[0].got for rank in ranks)


def flat(tensors: Iterable[Tensor]) -> list[float]:
    numbers: list[float] = torch.cat([tensor.view(-1) for tensor in tensors]).tolist()
    return numbers


@pytest.fixture(scope="module")
def summed() -> dict[Compression, list[Summed]]:
    """For each compression, return the state of each rank."""
    ranks = run_ranks(RANKS, summed_each_way)
    return {compression: [answer[compression] for answer in ranks] for compression in TOLERANCES}


@pytest.mark.parametrize("compression", TOLERANCES)
def test_every_rank_gets_the_same_sum_of_all_gradients(
    summed: dict[Compression, list[Summed]], compression: Compression
) -> None:
    assert_all_have_the_sum(summed[compression], TOLERANCES[compression])


@pytest.mark.parametrize(("compression", "element_bytes"), [("none", 4), ("fp16", 2), ("bf16", 2)])
def test_a_rank_contributes_4_or_2_bytes_per_element(
    summed: dict[Compression, list[Summed]], compression: Compression, element_bytes: int
) -> None:
    for rank in summed[compression]:
        assert rank.sent_bytes == rank.stated_bytes == element_bytes * ELEMENTS
