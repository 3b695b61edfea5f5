"""Sum the gradients of a small model over real gloo ranks; record what each rank received and sent."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch import Tensor, distributed, nn

from bertbench.distributed.world import World
from bertbench.gradients.gradient_sum import GradientSum
from tests.gradients.reducing import reducer_of

ELEMENTS = 19 * 23 + 19 + 29 * 19 + 29
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
