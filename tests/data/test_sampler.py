from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from bertbench.config import System
from bertbench.data.dataset import Dataset
from bertbench.data.loader import load_steps
from bertbench.data.permutation import Permutation
from bertbench.data.sampler import Normalize, Sampler
from bertbench.errors import DataError


@pytest.mark.parametrize("size", [1, 2, 3, 13, 64, 1_000])
def test_a_permutation_reaches_every_place_once(size: int) -> None:
    assert sorted(Permutation(size, 5)(np.arange(size)).tolist()) == list(range(size))


def test_permutations_differ_by_seed_and_don_t_keep_neighbours_together() -> None:
    first, second = (Permutation(10_007, seed)(np.arange(10_007)) for seed in (1, 2))
    assert np.mean(first == second) < 0.01
    assert np.mean(np.abs(np.diff(first)) < 10) < 0.01
    # the mean of the first thousand places is that of a random draw, 5,003 +- 4 standard errors
    assert abs(first[:1000].mean() - 5_003) < 4 * 10_007 / np.sqrt(12 * 1000)


def sampler(folder: Path, ranks: int, parts: int = 1, normalize: Normalize = "global") -> Sampler:
    return Sampler(Dataset.open(folder, "train"), 12, 99, ranks, parts, normalize)


def test_an_epoch_holds_every_sample_once_over_all_ranks(tiny_folder: Path) -> None:
    plan = sampler(tiny_folder, ranks=3)
    size = len(plan.dataset)
    steps = -(-size // 12)
    drawn = np.concatenate([part.ids for step in range(steps) for rank in range(3) for part in plan.share(step, rank)])
    in_order = np.concatenate([plan.global_batch(step) for step in range(steps)])[:size]
    assert sorted(in_order.tolist()) == list(range(size))
    assert sorted(drawn.tolist()) == sorted(np.concatenate([plan.global_batch(step) for step in range(steps)]).tolist())


def test_the_global_batch_doesn_t_depend_on_ranks_or_parts(tiny_folder: Path) -> None:
    for ranks, parts in ((1, 1), (2, 3), (4, 1)):
        plan = sampler(tiny_folder, ranks, parts)
        dealt = np.concatenate([part.ids for rank in range(ranks) for part in plan.share(20, rank)])
        assert dealt.tolist() == plan.global_batch(20).tolist()


def test_another_epoch_is_another_order(tiny_folder: Path) -> None:
    plan = sampler(tiny_folder, ranks=1)
    size = len(plan.dataset)
    stream = np.concatenate([plan.global_batch(step) for step in range(2 * size // 12 + 1)])
    assert not np.array_equal(stream[:size], stream[size : 2 * size])


@pytest.mark.parametrize("normalize", ["global", "rank"])
def test_the_weights_of_all_losses_add_up_to_one(tiny_folder: Path, normalize: Normalize) -> None:
    plan = sampler(tiny_folder, ranks=2, parts=3, normalize=normalize)
    parts = [part for rank in range(2) for part in plan.share(4, rank)]
    assert sum(part.masked_lm_weight * plan.dataset.masked(part.ids).sum() for part in parts) == pytest.approx(1)
    assert sum(part.next_sentence_weight * len(part.ids) for part in parts) == pytest.approx(1)
    assert (len({part.masked_lm_weight for part in parts}) == 1) == (normalize == "global")


def test_the_loader_brings_every_step_in_order(tiny: Callable[..., System], tiny_folder: Path) -> None:
    plan = sampler(tiny_folder, ranks=2)
    steps = list(load_steps(plan, plan.dataset.map_samples(), range(3, 8), 1, torch.device("cpu")))
    expected = [plan.share(step, 1)[0].ids.tolist() for step in range(3, 8)]
    assert [loaded.part.ids.tolist() for (loaded,) in steps] == expected
    assert [len(loaded.batch.tokens_T) for (loaded,) in steps] == [
        plan.dataset.lengths(np.array(ids)).sum() for ids in expected
    ]


def test_an_error_of_the_loader_reaches_the_loop(tiny_folder: Path) -> None:
    plan = sampler(tiny_folder, ranks=1)

    class Broken(Sampler):
        def share(self, step: int, rank: int) -> list:
            raise DataError("a shard is gone")

    broken = Broken(**vars(plan))
    with pytest.raises(DataError, match="a shard is gone"):
        next(load_steps(broken, plan.dataset.map_samples(), range(3), 0, torch.device("cpu")))
