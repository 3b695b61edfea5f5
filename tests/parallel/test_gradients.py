"""Gradients of a split model travel behind the backward pass, and come out as if they had waited for its end."""

from typing import Any
from unittest import mock

import pytest
import torch
from torch import distributed, nn

from bertbench.config.layout import Layout
from bertbench.distributed.world import World
from bertbench.optim.clip import Clip
from bertbench.parallel import gradients
from bertbench.parallel.process_groups import ProcessGroups
from tests.ranks import run_ranks

PARTS = 2


def test_buckets_travel_while_the_backward_pass_goes_on() -> None:
    for present_when_sent, found, expected in run_ranks(2, reduce_on_two):
        assert present_when_sent[0] < 6, "the first bucket leaves before the last gradients are there"
        assert present_when_sent == sorted(present_when_sent)
        assert len(present_when_sent) == 3
        assert found == pytest.approx(expected, rel=1e-5)


def reduce_on_two(world: World) -> tuple[list[int], list[float], list[float]]:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(5, 7), nn.Linear(7, 5), nn.Linear(5, 3))
    inputs = torch.randn(4, 5)
    parameters = list(model.parameters())
    groups = ProcessGroups(Layout(2, 1, 1, 1), world, False)
    with mock.patch.object(gradients, "_BUCKET_ELEMENTS", 42):
        summed = gradients.SplitReducer(parameters, None, groups, Clip(), False, PARTS)
    present: list[int] = []
    all_reduce = distributed.all_reduce

    def noted(*arguments: Any, **options: Any) -> Any:
        present.append(sum(parameter.grad is not None and bool(seen[parameter] == PARTS) for parameter in parameters))
        return all_reduce(*arguments, **options)

    seen = dict.fromkeys(parameters, 0)
    for parameter in parameters:
        parameter.register_hook(lambda _, parameter=parameter: seen.__setitem__(parameter, seen[parameter] + 1))
    expected = []
    for _ in range(2):  # two steps: the second begins as the first did
        present.clear()
        seen.update(dict.fromkeys(parameters, 0))
        for parameter in parameters:
            parameter.grad = None
        with mock.patch.object(distributed, "all_reduce", noted):
            for _ in range(PARTS):
                (model(inputs).square().sum() * (world.rank + 1)).backward()
            summed._reduce()
    alone = torch.autograd.grad(model(inputs).square().sum(), parameters)
    expected = [float(PARTS * 3 * gradient.sum()) for gradient in alone]  # ranks weigh 1 and 2
    return present, [float(parameter.grad.sum()) for parameter in parameters if parameter.grad is not None], expected
