"""When a run is given up: for its own faults, never for signals from outside."""

import signal

import pytest

from bertbench.launch.deaths import Deaths, from_outside

NAN = "rank 0: the loss of step 6 is nan on rank 0 of 2"


def test_the_third_death_by_one_fault_without_a_step_gained_is_enough() -> None:
    deaths = Deaths()
    assert [deaths.hopeless(NAN, 6) for _ in range(3)] == [False, False, True]


def test_the_same_fault_found_by_another_rank_counts_as_the_same() -> None:
    deaths = Deaths()
    found = [deaths.hopeless(f"rank {rank} was killed by SIGSEGV", 6) for rank in (0, 1, 3)]
    assert found == [False, False, True]


def test_a_step_gained_forgets_the_deaths_before_it_and_a_step_lost_does_not() -> None:
    deaths = Deaths()
    steps = (6, 6, 7, 5, 7)  # the fourth died before it came as far again
    assert [deaths.hopeless(NAN, step) for step in steps] == [False, False, False, False, True]


def test_signals_from_outside_neither_count_nor_forget() -> None:
    deaths = Deaths()
    faults = (None, None, None, None, NAN, None, NAN, None, NAN)
    assert [deaths.hopeless(fault, 6) for fault in faults] == [False] * 8 + [True]


def test_different_faults_are_counted_apart() -> None:
    deaths = Deaths()
    disk = "rank 0: result_0.txt: No space left on device"
    assert [deaths.hopeless(fault, 6) for fault in (NAN, disk, NAN, disk)] == [False] * 4


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_that_the_program_does_not_raise_comes_from_outside(number: signal.Signals) -> None:
    assert from_outside(number, out_of_memory=False)


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS])
def test_a_crash_is_the_programs_own(number: signal.Signals) -> None:
    assert not from_outside(number, out_of_memory=False)


def test_a_kill_for_lack_of_memory_is_the_programs_own() -> None:
    assert not from_outside(signal.SIGKILL, out_of_memory=True)
