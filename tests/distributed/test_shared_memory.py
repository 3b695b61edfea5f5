import os
import resource
import time
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch import distributed

from bertbench.distributed import shared_memory
from bertbench.distributed.network_errors import lost_contact
from bertbench.distributed.shared_memory import PIECE_BYTES
from bertbench.distributed.world import World, join
from lab.spawn import environments_of
from tests.ranks import answers_of, run_ranks

SUMMED = [
    *[(torch.float32, 3)] * 5,  # more often than there are sets of slots
    (torch.float32, 2 * PIECE_BYTES // 4 + 7), (torch.bfloat16, 11), (torch.float64, 13), (torch.int64, 1),
]  # fmt: skip


def sum_as_gloo_does(world: World) -> None:
    assert world.shared is not None
    generator = torch.Generator().manual_seed(world.rank)
    for dtype, elements in SUMMED:
        part = torch.randint(-9, 9, (elements,), generator=generator).to(dtype)
        by_gloo = part.float()
        world.shared.sum(part)
        distributed.all_reduce(by_gloo)
        assert torch.equal(part.float(), by_gloo)


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_every_rank_gets_the_sum_of_all_in_every_format_and_piece_by_piece(ranks: int) -> None:
    run_ranks(ranks, sum_as_gloo_does)


def scalar(world: World) -> float:
    return world.sum(torch.tensor(world.rank + 1.5)).item()


def has_it(changes: dict[str, str], forbidden_on: int | None) -> tuple[bool, float]:
    os.environ.update(changes)
    forbidden = mock.patch.object(shared_memory.mmap, "mmap", mock.Mock(side_effect=PermissionError("sandbox")))
    if os.environ["RANK"] == str(forbidden_on):
        forbidden.start()
    with join("cpu", timeout_s=20) as world:
        return world.shared is not None, scalar(world)


def answers(changes: dict[str, str], forbidden_on: int | None = None) -> list[Any]:
    return answers_of(environments_of(2), has_it, changes, forbidden_on)


def test_ranks_on_two_machines_use_torch_s_collectives() -> None:
    elsewhere = {"LOCAL_WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    assert answers({}) == [(False, (True, 4.0))] * 2
    assert answers(elsewhere) == [(False, (False, 4.0))] * 2


def test_if_one_rank_may_not_share_memory_none_does() -> None:
    assert answers({}, forbidden_on=1) == [(False, (False, 4.0))] * 2


def leave_or_wait(world: World) -> None:
    assert world.shared is not None
    if world.rank == 1:
        time.sleep(0.3)
        world.shared.close()
        return
    began = time.monotonic()
    with pytest.raises(RuntimeError, match="rank 1 has gone") as raised:
        world.shared.sum(torch.ones(3))
    assert time.monotonic() - began < 5
    assert lost_contact(raised.value)


def test_a_rank_that_leaves_ends_the_wait_at_once() -> None:
    run_ranks(2, leave_or_wait)


def under_a_limit(said: str) -> tuple[bool, float]:
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    return has_it({}, None)


def test_a_limit_on_the_size_of_files_is_named_and_costs_only_the_shared_memory(tmp_path: Path) -> None:
    assert answers_of(environments_of(2), under_a_limit, str(tmp_path / "said")) == [(False, (False, 4.0))] * 2
    assert [line for line in (tmp_path / "said").read_text().splitlines() if "warning" in line] == [
        "warning: rank 0: no memory to share (File too large); see `ulimit -f`; sums use gloo, which is slower"
    ]
