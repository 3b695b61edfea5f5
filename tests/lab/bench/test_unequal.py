"""`lab unequal`: another program really slows one rank, while runs with both assignments train."""

import os
from pathlib import Path

import pytest

from lab.bench.unequal import busy_core
from tests.conftest import Answer


def ticks_of_core(core: int) -> int:
    """Return the processor time, in ticks, that all programs have used on a core."""
    line = next(line for line in Path("/proc/stat").read_text().splitlines() if line.startswith(f"cpu{core} "))
    user, nice, system = map(int, line.split()[1:4])
    return user + nice + system


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="binds cores on Linux only")
def test_the_busy_program_works_on_its_core_until_the_block_ends() -> None:
    core = max(os.sched_getaffinity(0))
    children = children_of(os.getpid())
    before = ticks_of_core(core)
    with busy_core(core):
        while ticks_of_core(core) == before:
            pass
    assert children_of(os.getpid()) == children


def children_of(parent: int) -> list[str]:
    """Return the ids of a process's children."""
    return Path(f"/proc/{parent}/task/{parent}/children").read_text().split()


@pytest.mark.slow
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="each rank needs a core")
def test_equal_work_and_work_by_measured_speed_are_timed_in_pairs(answer: Answer) -> None:
    measured = answer("lab", "unequal", "--batch", "1", "--steps", "1")
    assert set(measured["step_ms"]) == {"equal work", "by measured speed"}
    assert measured["ratio"] > 0
