import os
import socket
import time

import pytest

from bertbench.common.errors import RunError
from bertbench.distributed.affinity import core_list, own_cores
from bertbench.distributed.rendezvous import Ranks, launched_ranks
from bertbench.distributed.world import World, join
from tests.ranks import answers_of, run_ranks

TORCHRUN = {"RANK": "5", "WORLD_SIZE": "16", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}
SLURM = {
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "5",
    "SLURM_STEP_NUM_TASKS": "16",
    "SLURM_LOCALID": "1",
    "SLURM_STEP_TASKS_PER_NODE": "6,4(x2),2",
    "SLURM_NODEID": "2",
}


@pytest.mark.parametrize("environment", [TORCHRUN, SLURM])
def test_a_launcher_s_variables_say_which_rank_this_is(environment: dict[str, str]) -> None:
    assert launched_ranks(environment) == Ranks(rank=5, size=16, local_rank=1, local_size=4)


def test_without_a_launcher_a_process_is_no_rank() -> None:
    assert launched_ranks({}) is None
    assert launched_ranks({"SLURM_PROCID": "0"}) is None  # a batch script, not a task of srun


@pytest.mark.parametrize("environment", [TORCHRUN, SLURM])
@pytest.mark.parametrize("change", ["missing", "many", "-1", "99"])
def test_a_missing_or_wrong_variable_is_one_error(environment: dict[str, str], change: str) -> None:
    name = [*environment][-3]  # the size of the world, or the place on the node
    changed = {key: change if key == name else text for key, text in environment.items()}
    if change == "missing":
        del changed[name]
    if change == "99" and name == "WORLD_SIZE":
        changed["RANK"] = "99"  # one more than there are ranks
    with pytest.raises(RunError, match=name):
        launched_ranks(changed)


def test_slurm_s_node_beyond_its_list_is_one_error() -> None:
    with pytest.raises(RunError, match="SLURM_NODEID"):
        launched_ranks({**SLURM, "SLURM_NODEID": "9"})


def environment(rank: int, size: int, port: int) -> dict[str, str]:
    return {
        "RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
    }  # fmt: skip


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def try_to_join() -> str:
    try:
        with join("cpu", timeout_s=3):
            return "joined"
    except RunError as error:
        return str(error)


def test_ranks_that_do_not_come_are_named_by_all_that_did() -> None:
    port = free_port()
    began = time.monotonic()
    answers = answers_of([environment(rank, 5, port) for rank in (0, 2, 3)], try_to_join)
    assert time.monotonic() - began < 30  # not a hang, on a busy machine too
    for failed, text in answers:
        assert not failed, text
        assert "3 of 5 ranks came within 3 s; missing: ranks 1, 4 of 5" in text


def test_a_rank_that_comes_twice_is_named_by_all_at_once() -> None:
    port = free_port()
    began = time.monotonic()
    answers = answers_of([environment(rank, 3, port) for rank in (0, 1, 1)], try_to_join)
    assert time.monotonic() - began < 30  # not a hang, on a busy machine too
    assert all("rank 1 of 3 came twice" in text for _, text in answers), answers


def test_ranks_that_were_told_different_sizes_are_told_so() -> None:
    port = free_port()
    answers = answers_of([environment(0, 2, port), environment(1, 3, port)], try_to_join)
    assert all("ranks, another of" in text for _, text in answers), answers


def test_without_rank_0_or_an_address_the_error_says_what_to_set() -> None:
    ((_, alone),) = answers_of([environment(1, 2, free_port())], try_to_join)
    assert "rank 1 of 2 could not meet the others at 127.0.0.1" in alone
    without = {key: text for key, text in environment(1, 2, 1).items() if key != "MASTER_ADDR"}
    ((_, lost),) = answers_of([without], try_to_join)
    assert "MASTER_ADDR not set, so 2 ranks can't meet" in lost


def test_every_rank_hears_every_text_by_rank() -> None:
    assert run_ranks(3, gathered) == [["0", "1", "2"]] * 3


def gathered(world: World) -> list[str]:
    return world.from_all(str(world.rank))


def test_ranks_share_the_cores_that_they_are_near() -> None:
    near_0, near_1 = list(range(5)), [8, 9]
    nearby = [near_0, near_0, near_1, near_0]
    assert [own_cores(rank, nearby) for rank in range(4)] == [[0], [1, 2], [8, 9], [3, 4]]
    assert own_cores(1, [[7], [7]]) == [7]  # fewer cores than ranks
    assert core_list("0-3,8,10-11\n") == {0, 1, 2, 3, 8, 10, 11}
    assert core_list("\n") == set()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="binds cores on Linux only")
def test_bound_ranks_of_a_node_keep_to_cores_of_their_own() -> None:
    port = free_port()
    answers = answers_of([environment(rank, 2, port) for rank in range(2)], cores_when_bound)
    available = sorted(os.sched_getaffinity(0))
    assert not any(failed for failed, _ in answers), answers
    first, second = (set(cores) for _, cores in answers)
    assert first | second == set(available)
    assert len(available) < 2 or not first & second


def cores_when_bound() -> list[int]:
    with join("cpu", timeout_s=20, bind_cores=True):
        return sorted(os.sched_getaffinity(0))
