"""Gradients of a split model are sent during the backward pass; test_equality.py compares the results."""

from typing import Any
from unittest import mock

import torch
from torch import Tensor, distributed, nn

from bertbench.config.layout import Layout
from bertbench.distributed.world import World
from bertbench.gradients.buckets import bucket_table
from bertbench.gradients.clip import GradientClip
from bertbench.parallel import gradients
from bertbench.parallel.process_groups import ProcessGroups
from tests.ranks import run_ranks


def test_buckets_are_sent_while_the_backward_pass_continues() -> None:
    for arrived_when_sent in run_ranks(2, reduce_on_two):
        assert arrived_when_sent == sorted(arrived_when_sent)
        assert len(arrived_when_sent) == 3
        assert 6 < arrived_when_sent[0] < 12, "in the last part, before its last gradients are there"


def reduce_on_two(world: World) -> list[int]:
    """Return how many of two parts' 6 gradients each had arrived as each bucket was sent."""
    model = nn.Sequential(nn.Linear(5, 7), nn.Linear(7, 5), nn.Linear(5, 3))
    groups = ProcessGroups(Layout(2, 1, 1, 1), world, False)
    with mock.patch.object(gradients, "bucket_table", lambda parameters, _: bucket_table(parameters, 80 / 2**20)):
        summed = gradients.SplitReducer(list(model.parameters()), None, groups, GradientClip(), False, parts=2)
    arrived: list[Tensor] = []
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(arrived.append)
    sent: list[int] = []
    all_reduce = distributed.all_reduce

    def noted(*arguments: Any, **options: Any) -> Any:
        if options.get("async_op"):  # a bucket's sum; the norm's is waited for
            sent.append(len(arrived))
        return all_reduce(*arguments, **options)

    with mock.patch.object(distributed, "all_reduce", noted):
        for _ in range(2):
            model(torch.ones(4, 5)).square().sum().backward()
        summed.finish()
    return sent
