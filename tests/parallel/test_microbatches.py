"""Microbatches of equal size: how samples are assigned to them, and how they are padded."""

import numpy as np
import pytest

from bertbench.common.errors import ConfigError
from bertbench.config import System
from bertbench.parallel.microbatches import TokenSampler
from tests.conftest import Tiny
from tests.training.steps import sampler_of

STAGED = ("parallel.pipeline=2", "parallel.microbatches=3", "data.global_batch_size=12")


def tokens_of(system: System) -> TokenSampler:
    sampler = sampler_of(system)
    assert isinstance(sampler, TokenSampler)
    return sampler


def test_every_sample_is_in_one_microbatch_and_none_is_larger_than_the_budget(tiny: Tiny) -> None:
    sampler = tokens_of(tiny(*STAGED))
    budget, largest = sampler.budget(range(6), 0), 0
    for step in range(6):
        plan = sampler.planner.plan(step)
        parts = [part.ids for part in sampler.share(plan, 0)]
        assert len(parts) == 3
        assert sorted(np.concatenate(parts)) == sorted(plan.assigned.ids_S)
        tokens = [int(sampler.dataset.lengths(ids).sum()) for ids in parts]
        assert max(tokens) <= min(tokens) + sampler.dataset.lengths(plan.assigned.ids_S).max()
        largest = max(largest, *tokens)
    assert budget == largest


def test_fewer_samples_than_microbatches_are_refused_with_a_way_out(tiny: Tiny) -> None:
    with pytest.raises(ConfigError, match="3 microbatches"):
        tokens_of(tiny(*STAGED)).pieces(np.array([4, 7]))
