"""Each way to sum a gradient over real gloo ranks, against the plain sum."""

import math
from typing import Any

import pytest
import torch
from torch import distributed, nn

from bertbench.config.optimizer import Communication
from bertbench.distributed.world import World
from bertbench.gradients.gradient_sum import bytes_per_step
from bertbench.gradients.powersgd import PowerSgdSum
from tests.gradients.reducing import reducer_of
from tests.ranks import run_ranks
from tests.watching import Watching

WAYS = {
    "none": Communication(),
    "fp16": Communication(compression="fp16"),
    "bf16": Communication(compression="bf16"),
    "hierarchical": Communication(hierarchical=True),
    "bf16, hierarchical": Communication(compression="bf16", hierarchical=True),
    "powersgd": Communication(compression="powersgd", powersgd_rank=3, powersgd_start_step=2),
}
# of the largest element: fp16 keeps 11 bits, bf16 8, and a sum of four rounds four times
TOLERANCE = {"none": 1e-6, "hierarchical": 1e-6, "fp16": 2e-3, "bf16": 2e-2, "bf16, hierarchical": 2e-2,
             "powersgd": 1e-3}  # fmt: skip
SHAPES = ((19, 23), (19,), (29, 19), (29,))


def summed_bytes(function: Any, arguments: Any) -> int:
    """Bytes that an operation sums over ranks."""
    if function._schema.name == "c10d::allreduce_":
        return sum(tensor.nbytes for tensor in arguments[0])
    return arguments[1].nbytes if function._schema.name == "c10d::_reduce_scatter_base_" else 0


def sums(world: World) -> dict[str, tuple[float, bool, int]]:
    """For each way: its error against the largest element, whether ranks agree, bytes sent. Two nodes of two ranks."""
    found = {}
    for name, options in WAYS.items():
        model = nn.Sequential(nn.Linear(23, 19), nn.Linear(19, 29))
        reducer = reducer_of(model, world.size, 1000 / 2**20, options=options, local_size=2)
        generator = torch.Generator().manual_seed(world.rank)
        for _ in range(3):  # PowerSGD begins with the third
            reducer.drop()
            # multiples of one input: gradient matrices have at most rank 2, so PowerSGD's rank 3 finds them exactly
            loss = model(torch.randn(2, 1, generator=generator) * torch.linspace(-1, 1, 23)).square().sum()
            own = torch.cat(
                [g.view(-1) for g in torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)]
            )
            sent = list[int]()
            with Watching(lambda *operation, sent=sent: sent.append(summed_bytes(*operation))):
                loss.backward()
                reducer.finish()
        got = torch.cat([parameter.grad.view(-1) for parameter in model.parameters()])
        distributed.all_reduce(own)
        copies = [torch.empty_like(got) for _ in range(world.size)]
        distributed.all_gather(copies, got)
        error = ((got - own).abs().max() / own.abs().max()).item()
        if isinstance(
            way := reducer._sum, PowerSgdSum
        ):  # its factors travel in threads of gloo, where `Sent` may not see them
            matrices = (*way._state.p_memory_dict.values(), *way._state.q_memory_dict.values())
            sent = [*(matrix.nbytes for matrix in matrices), 4 * (19 + 29)]  # and the biases in full
        found[name] = (error, all(torch.equal(got, copy) for copy in copies), sum(sent))
    return found


def test_every_way_gives_all_ranks_the_sum_for_the_bytes_that_it_says() -> None:
    for found in run_ranks(4, sums):
        for name, (error, alike, sent) in found.items():
            assert alike, name
            assert error < TOLERANCE[name], name
            expected = bytes_per_step(WAYS[name], SHAPES, list(map(math.prod, SHAPES)), 4)
            if WAYS[name].hierarchical:  # all of it within a node, half between nodes; padded to equal slices
                assert sent == pytest.approx(1.5 * expected, abs=1.5 * 12 * len(SHAPES))
            else:
                assert sent == expected, name
        assert found["none"][2] == 4 * (19 * 23 + 19 + 29 * 19 + 29)


def test_powersgd_sends_factors_of_the_matrices_that_are_worth_it() -> None:
    # 100 x 50 at rank 4: 4 x 150 elements in place of 5,000; 6 x 5: its factors would be more than half of it
    options = Communication(compression="powersgd", powersgd_rank=4)
    assert bytes_per_step(options, [(100, 50), (6, 5), (7,)], [], 1) == 4 * (600 + 30 + 7)
