"""An attempt that fails on all ranks is an answer; one that fails on a rank alone ends that rank with the reason."""

import time
from unittest import mock

import pytest
import torch
from torch import distributed

from bertbench.common.errors import RunError
from bertbench.distributed import joint_attempt
from bertbench.distributed.joint_attempt import attempt_together, reason_of
from bertbench.distributed.world import World
from tests.ranks import run_ranks

WAIT_S = 0.5


def attempted(world: World, failing: list[int], seconds: float) -> str:
    """Attempt a barrier that the failing ranks never reach, each `seconds` later than the one before."""

    def attempt() -> str:
        if world.rank in failing:
            time.sleep(world.rank * seconds)
            raise RuntimeError("of the compiler:\nno such instruction")
        world.barrier()
        return "done"

    with mock.patch.object(joint_attempt, "_LEAST_WAIT_S", WAIT_S):
        outcome = attempt_together(world, "the check of bf16", attempt, (RuntimeError,), "leave bf16 out")
    return reason_of(outcome) if isinstance(outcome, Exception) else outcome


@pytest.mark.parametrize(("failing", "expected"), [([], "done"), ([0, 1, 2], "no such instruction")])
def test_what_succeeds_or_fails_on_all_ranks_is_known_on_all(failing: list[int], expected: str) -> None:
    assert run_ranks(3, attempted, failing, WAIT_S / 10) == [expected] * 3


def test_ranks_wait_for_one_that_fails_late_as_long_as_they_took_themselves() -> None:
    with mock.patch.object(joint_attempt, "_LOOK_EVERY_S", 0.01):
        assert run_ranks(2, failed_late) == ["late", "late"]


def failed_late(world: World) -> str:
    """Fail after 3 waits on rank 0, and after 5 on rank 1."""

    def attempt() -> None:
        time.sleep((5 if world.rank else 3) * WAIT_S)
        raise RuntimeError("late")

    with mock.patch.object(joint_attempt, "_LEAST_WAIT_S", WAIT_S):
        return str(attempt_together(world, "it", attempt, (RuntimeError,), "leave it out"))


def test_a_rank_that_fails_alone_says_why_and_which_ranks_wait_for_it() -> None:
    lone, *others = run_ranks(3, lone_failure)
    assert "no such instruction" in lone
    assert "ranks 1, 2 of 3" in lone
    assert others == ["done", "done"]


def lone_failure(world: World) -> str:
    """Fail on rank 0 alone; once it has given up, it comes to the barrier after all, so that the test can end."""
    try:
        return attempted(world, [0], 0)
    except RunError as error:
        world.barrier()
        return str(error)


def test_ranks_that_fail_in_different_places_do_not_go_on_together() -> None:
    for text in run_ranks(2, failed_apart):
        assert "too late" in text


def failed_apart(world: World) -> str:
    """Fail on rank 0 before a sum, and on rank 1 after it has begun one."""

    def attempt() -> None:
        if world.rank == 1:
            distributed.all_reduce(torch.ones(3), async_op=True)
        raise RuntimeError("too late")

    try:
        attempt_together(world, "it", attempt, (RuntimeError,), "leave it out")
    except RunError as error:
        if world.rank == 0:
            distributed.all_reduce(torch.ones(3))  # so that the test can end
        return str(error).partition(";")[0]
    return "went on"


def test_a_bug_keeps_its_traceback() -> None:
    with pytest.raises(AssertionError, match="KeyError: 'a bug'"):
        run_ranks(1, with_a_bug)


def with_a_bug(world: World) -> None:
    def attempt() -> None:
        raise KeyError("a bug")

    attempt_together(world, "it", attempt, (RuntimeError,), "leave it out")
