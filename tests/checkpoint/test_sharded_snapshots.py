"""A snapshot of sliced optimizer state goes on with whole state, with other slices, and back; to the last bit."""

from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from torch import Tensor

from bertbench.config import System
from bertbench.distributed.sliced_tensor import SlicedTensor
from bertbench.distributed.world import World
from bertbench.model.logical_tensors import whole_tensor
from tests.conftest import Tiny
from tests.ranks import run_ranks
from tests.relay import relay

Held = dict[str, list[tuple[tuple[int, ...], tuple[int, ...], np.ndarray]]]
"""By name of a tensor: its shape, and the offsets and the content of a rectangle of it."""


def held(state: dict[str, Tensor]) -> Held:
    """What a rank has of a state."""
    return {
        name: [(tuple(tensor.shape), offsets, piece.numpy().copy()) for offsets, piece in tensor.rectangles]
        if isinstance(tensor, SlicedTensor)
        else [(tuple(tensor.shape), (0,) * tensor.dim(), whole_tensor(tensor).numpy().copy())]
        for name, tensor in state.items()
    }


def held_in_the_relay(world: World, folder: Path, taken: int, *systems: System) -> list[tuple[float, Held, Held]]:
    return relay(world, folder, taken, systems, held)


def together(of_ranks: list[Held]) -> dict[str, np.ndarray]:
    """Whole tensors, each element from the ranks that hold it."""
    pieces = defaultdict(list)
    for of_rank in of_ranks:
        for name, its in of_rank.items():
            pieces[name] += its
    whole = {}
    for name, its in pieces.items():
        whole[name] = np.full(its[0][0], np.nan, its[0][2].dtype)
        for _, offsets, content in its:
            places = tuple(slice(start, start + size) for start, size in zip(offsets, content.shape, strict=True))
            whole[name][places] = content
        assert not np.isnan(whole[name]).any(), f"nobody holds all of {name}"
    return whole


@pytest.mark.slow
def test_snapshots_move_between_sliced_and_whole_state_and_numbers_of_ranks(tiny: Tiny, tmp_path: Path) -> None:
    def system(ranks: int, *overrides: str) -> System:
        return tiny(
            "optimizer.name=lamb", "checkpoint.every_steps=1", "clip.mode=after", f"launch.ranks_per_node={ranks}",
            *overrides,
        )  # fmt: skip

    sliced, small = "optimizer.sharded=true", "communication.bucket_mb=0.003"
    on_two = [system(2, sliced), system(2), system(2, sliced, small)]
    answers = [*zip(*run_ranks(2, held_in_the_relay, tmp_path, 0, *on_two), strict=True)]
    answers += zip(*run_ranks(4, held_in_the_relay, tmp_path, 3, system(4, sliced, small)), strict=True)
    states = [(together([one[1] for one in ranks]), together([one[2] for one in ranks])) for ranks in answers]
    for (_, left), (found, _) in pairwise(states):
        assert left.keys() == found.keys()
        assert all(np.array_equal(left[name], found[name]) for name in left)
    alone = [one for one, *_ in run_ranks(1, held_in_the_relay, tmp_path / "alone", 0, *[system(1)] * 4)[0]]
    assert [ranks[0][0] for ranks in answers] == pytest.approx(alone, abs=2e-5)
