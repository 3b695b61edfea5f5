"""When a run is given up: for its own faults, never for signals from outside."""

import signal

import pytest

from bertbench.launch.local import from_outside, hopeless

NAN, DISK = "rank 0: the loss of step 6 is nan on rank 0 of 2", "rank 0: result_0.txt: No space left on device"


@pytest.mark.parametrize(
    ("deaths", "last"),
    [
        ([(NAN, 6)] * 3, 3),
        ([(f"rank {rank} was killed by SIGSEGV", 6) for rank in (0, 1, 3)], 3),  # the same fault, by other ranks
        ([(NAN, 6), (NAN, 6), (NAN, 7), (NAN, 5), (NAN, 7)], 5),  # a step gained forgets, a step lost doesn't
        ([(fault, 6) for fault in (None, None, None, None, NAN, None, NAN, None, NAN)], 9),  # None: from outside
        ([(fault, 6) for fault in (NAN, DISK, NAN, DISK)], 0),
    ],
)
def test_the_third_death_by_one_fault_without_a_step_gained_is_hopeless(
    deaths: list[tuple[str | None, int]], last: int
) -> None:
    counts = range(1, len(deaths) + 1)
    assert [hopeless(deaths[:count]) for count in counts] == [count == last for count in counts]


def test_a_crash_and_a_kill_for_lack_of_memory_are_the_programs_own_other_signals_come_from_outside() -> None:
    outside = {signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1}
    own = {signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS}
    assert {number for number in outside | own if from_outside(number, out_of_memory=False)} == outside
    assert not from_outside(signal.SIGKILL, out_of_memory=True)
