"""How an attempt ended, and when a run is given up: after faults of its own, never after signals from outside."""

import signal
from pathlib import Path

import pytest
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

from bertbench.distributed.failure import report_to_launcher
from bertbench.launch.local import Death, hopeless, how_ended

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
def test_a_third_death_of_the_same_fault_without_progress_is_final(
    deaths: list[tuple[str | None, int]], last: int
) -> None:
    so_far: list[Death] = []
    for count, (fault, last_step) in enumerate(deaths, start=1):
        so_far.append(Death(fault, last_step))
        assert hopeless(so_far) == (count == last)


def test_crashes_and_kills_for_lack_of_memory_are_the_programs_fault_and_other_signals_are_not() -> None:
    def from_outside(number: signal.Signals, out_of_memory: bool = False) -> bool:
        return how_ended({0: ProcessFailure(0, 1, -number, "/nowhere")}, out_of_memory).outside

    outside = {signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1}
    own_faults = {signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS}
    assert set(filter(from_outside, outside | own_faults)) == outside
    assert not from_outside(signal.SIGKILL, out_of_memory=True)


MISTAKE = "rank 1: the model doesn't fit this run"


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        ([(75, "rank 0: stopped by SIGTERM"), (2, MISTAKE)], (2, MISTAKE, True)),
        ([(1, MISTAKE), (2, MISTAKE)], (2, MISTAKE, True)),  # rank 0 ended with rank 1's cause, and before it
        ([(-signal.SIGTERM, ""), (2, "")], (2, "rank 1 ended with exit code 2", False)),
        ([(75, ""), (1, NAN)], (1, NAN, True)),
        ([(-signal.SIGSEGV, ""), (1, NAN)], (1, NAN, True)),
        ([(75, ""), (-signal.SIGKILL, "")], (1, "rank 1 was killed by SIGKILL", False)),
        ([(-signal.SIGTERM, ""), (75, "rank 1: stopped by SIGUSR1, after step 4")], (75, None, False)),
        ([(-signal.SIGTERM, ""), (3, "")], (3, None, False)),
        ([(1, ""), (-signal.SIGTERM, "")], (1, "rank 1 was killed by SIGTERM", False)),
        ([(5, "")], (1, "rank 0 ended with exit code 5", False)),
    ],
)
def test_the_cause_of_a_failed_attempt_comes_from_the_rank_that_knows_it(
    ranks: list[tuple[int, str]], expected: tuple[object, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank is its exit code and the cause that it recorded."""
    failures = {}
    for rank, (code, cause) in enumerate(ranks):
        file = str(tmp_path / f"{rank}.json")
        monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", file)
        if cause:
            report_to_launcher(cause)
        failures[rank] = ProcessFailure(rank, 1, code, file)
    assert how_ended(failures, out_of_memory=False)[:3] == expected
