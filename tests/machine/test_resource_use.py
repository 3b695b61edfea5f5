"""What a rank's lines say that it used."""

import time

import torch

from bertbench.distributed.world import World
from bertbench.machine.resource_use import ResourceUse, Use
from tests.ranks import run_ranks

CPU = torch.device("cpu")


def test_a_rank_that_waits_keeps_no_core_busy() -> None:
    use = ResourceUse(CPU)
    time.sleep(0.2)
    assert use.read()["cores_busy"] < 0.5


def test_a_rank_that_computes_keeps_more_of_a_core_busy_than_one_that_waits() -> None:
    use = ResourceUse(CPU)
    until = time.process_time() + 0.2
    while time.process_time() < until:
        pass
    busy = use.read()["cores_busy"]
    time.sleep(0.2)
    assert use.read()["cores_busy"] < busy <= 1.1


def test_memory_grows_by_what_is_filled_and_its_peak_stays() -> None:
    before, during, after = run_ranks(1, uses_around_a_filled_tensor)[0]  # in a process that frees nothing else
    assert during["memory_gb"] >= before["memory_gb"] + 0.19
    assert during["peak_memory_gb"] >= during["memory_gb"]
    assert after["peak_memory_gb"] >= during["peak_memory_gb"]


def uses_around_a_filled_tensor(_: World) -> list[Use]:
    use = ResourceUse(CPU)
    before = use.read()
    filled = torch.ones(50_000_000)  # 0.2 GB
    during = use.read()
    del filled  # a rank may keep the memory for its next tensor
    return [before, during, use.read()]
