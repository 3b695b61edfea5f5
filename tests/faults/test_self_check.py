"""A rank that fails alone in the check of fast paths ends all ranks within seconds, with its own message."""

import os
import signal
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bertbench.distributed.world import World
from bertbench.training.whole_trainer import WholeTrainer
from tests.conftest import Tiny
from tests.faults.ended import trained

pytestmark = pytest.mark.faults
BOUND_S = 60
"""Of a run whose ranks start in 3 s and end within 10: this machine may be busy. Collectives wait for 660 s."""


def broken_bf16(victim: int, world: World) -> None:
    """On one rank, fail every step in bf16."""
    if world.rank == victim:
        replace_bf16_steps("no such instruction")


def killed_in_bf16(world: World) -> None:
    """On rank 1, kill the process in the first step in bf16."""
    if world.rank == 1:
        replace_bf16_steps("")


def replace_bf16_steps(error: str) -> None:
    step = WholeTrainer.step

    def step_or_fail(self: WholeTrainer, number: int, parts: Sequence[Any]) -> Any:
        if self._system.precision.compute != "bf16":
            return step(self, number, parts)
        if not error:
            os.kill(os.getpid(), signal.SIGKILL)
        raise RuntimeError(error)

    WholeTrainer.step = step_or_fail  # type: ignore[method-assign]


@pytest.mark.parametrize("victim", [0, 1])
def test_a_path_that_fails_on_one_rank_alone_ends_all_ranks_with_its_message(
    tiny: Tiny, tmp_path: Path, victim: int
) -> None:
    began = time.monotonic()
    ended = trained(tmp_path, tiny("precision.compute=bf16"), partial(broken_bf16, victim))
    assert time.monotonic() - began < BOUND_S
    assert ended.codes == [1, 1]
    (line,) = ended.said.splitlines()
    assert line.startswith(
        f"bertbench: rank {victim}: the check of bf16 failed on this rank alone (no such instruction), and "
        f"rank {1 - victim} of 2 can't go on without it; repair "
    )
    assert line.endswith(", or add --set precision.compute=fp32")


def test_a_rank_killed_in_the_check_is_no_failure_of_the_path(tiny: Tiny, tmp_path: Path) -> None:
    began = time.monotonic()
    ended = trained(tmp_path, tiny("precision.compute=bf16"), killed_in_bf16)
    assert time.monotonic() - began < BOUND_S
    assert ended.codes == [1, -signal.SIGKILL]
    (line,) = ended.said.splitlines()
    assert line.startswith("bertbench: rank 0: stops because another rank is gone")
