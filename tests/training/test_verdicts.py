"""Verdicts on fast paths are remembered while nothing that they depend on changes."""

from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

from bertbench.config import System
from bertbench.distributed.world import World
from bertbench.machine.choose_arithmetic import Arithmetic
from bertbench.model.linear import Products
from bertbench.model.products import Shape
from bertbench.training import verdicts
from bertbench.training.self_check import check_fast_paths
from bertbench.training.small_step import StepResult
from bertbench.training.verdicts import check_unless_known
from tests.conftest import Tiny
from tests.ranks import run_each
from tests.training.test_self_check import arithmetic

COMMIT = "1a2b3c"


def in_cache(folder: Path, world: World, *run: Any) -> tuple[tuple[str, ...], int]:
    """Start a run whose cache is in this folder."""
    with mock.patch.dict("os.environ", XDG_CACHE_HOME=str(folder)):
        return started(world, *run)


def started(
    world: World, system: System, wanted: Arithmetic, commit: str | None = COMMIT, loss: float = 1.0
) -> tuple[tuple[str, ...], int]:
    """Which paths a run's start checks or knows, and how many steps that takes; a loss of 1 is the plain one."""
    taken = 0

    def take(trial: System, _: World, __: dict[Shape, Products]) -> StepResult:
        nonlocal taken
        taken += 1
        return {"loss": torch.tensor(1.0 if trial.precision.compute == "fp32" else loss)}

    check: Any = partial(check_fast_paths, take=take)
    with mock.patch.object(verdicts, "unchanged_commit", lambda: commit):
        return check_unless_known(system, world, wanted, check).checked, taken


def test_paths_that_held_are_not_checked_again_until_commit_or_settings_change(tiny: Tiny, tmp_path: Path) -> None:
    system, other = tiny(), tiny("optimizer.learning_rate=0.002")
    bf16 = arithmetic(precision="bf16")
    measured = arithmetic(precision="bf16", source="measured")
    runs = (system, bf16), (system, measured), (system, bf16, "4d5e6f"), (other, bf16), (system, bf16)
    for found in run_each(2, partial(in_cache, tmp_path), *runs):
        assert found == [(("bf16",), 2), (("bf16",), 0), (("bf16",), 2), (("bf16",), 2), (("bf16",), 0)]


@pytest.mark.parametrize(("commit", "loss"), [(None, 1.0), (COMMIT, 2.0)])
def test_changed_code_and_refusals_are_not_remembered(
    tiny: Tiny, tmp_path: Path, commit: str | None, loss: float
) -> None:
    run = tiny("launch.ranks_per_node=1"), arithmetic(precision="bf16"), commit, loss
    assert run_each(1, partial(in_cache, tmp_path), run, run) == [[(("bf16",), 2)] * 2]
    assert not (tmp_path / "bertbench" / "fast_paths.json").exists()
