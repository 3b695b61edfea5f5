"""Finished steps of a GPU, and the verdict on one that finishes none; marks in a queue stand in for its events."""

import time
from pathlib import Path

import pytest
from torch.distributed import HashStore

from bertbench.distributed import watchdog as watchdog_module
from bertbench.distributed.device_steps import DeviceSteps
from bertbench.distributed.failure import FailureReport
from bertbench.distributed.rendezvous import Ranks
from bertbench.distributed.watchdog import Limits, Watchdog
from tests.whole_runs import wait_for


class Queue:
    """A device that has passed the first `passed` of its marks."""

    def __init__(self) -> None:
        self.marks = 0
        self.passed = 0

    def record(self) -> "Mark":
        self.marks += 1
        return Mark(self, self.marks)


class Mark:
    """A place in a queue."""

    def __init__(self, queue: Queue, number: int) -> None:
        self._queue = queue
        self._number = number

    def query(self) -> bool:
        return self._queue.passed >= self._number


def test_finished_steps_are_those_whose_marks_the_device_has_passed() -> None:
    queue = Queue()
    steps = DeviceSteps(queue.record)
    for step in (7, 8, 9):
        steps.launched(step)
    steps.look()
    assert steps.finished == 6
    queue.passed = 2
    steps.look()
    assert steps.finished == 8
    time.sleep(0.02)
    assert steps.waiting_s() >= 0.02
    queue.passed = 3
    steps.look()
    assert (steps.finished, steps.waiting_s()) == (9, 0.0), "an idle device keeps nobody waiting"


def test_a_pause_between_steps_doesn_t_count_as_waiting() -> None:
    queue = Queue()
    steps = DeviceSteps(queue.record)
    time.sleep(0.05)
    steps.launched(1)
    assert steps.waiting_s() < 0.05


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # the verdict ends its thread
def test_a_device_that_finishes_no_step_ends_the_run_with_the_last_finished_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    verdicts: list[str] = []
    monkeypatch.setattr(watchdog_module, "report_to_launcher", verdicts.append)
    monkeypatch.setattr(watchdog_module, "end_process", lambda *_: raise_exit())
    queue, store, ranks = Queue(), HashStore(), Ranks(0, 1, 0, 1)
    queue.passed = 2
    # a tenth of 20 s for the device, looked at every 0.1 s
    watchdog = Watchdog(store, ranks, FailureReport(store, ranks), Limits(1.0, 20.0), DeviceSteps(queue.record))
    watchdog.leave_evidence_in(tmp_path)
    watchdog.start()
    try:
        for _ in watchdog.around(iter("abcd"), steps_taken=4):
            pass
        wait_for(lambda: bool(verdicts), 10)
    finally:
        watchdog.close()
    assert "step 6" in verdicts[0]


def raise_exit() -> None:
    raise SystemExit
