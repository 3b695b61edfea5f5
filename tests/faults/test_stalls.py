"""A rank that is stopped, stuck, or starved ends the run within the bound, with one message that names it."""

import itertools
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from bertbench.data.store.columns import Columns
from bertbench.distributed.world import World
from bertbench.loading.batch import SampleCheck
from compliance.read.log import read_events
from tests.conftest import Tiny
from tests.faults.ended import Ended, trained
from tests.whole_runs import children, launched, metrics, wait_for_steps, words

pytestmark = [pytest.mark.faults, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc to find the ranks")]

SILENT_S = 4
ENDLESS = ("schedule.max_steps=100000", "evaluation.interval_samples=600000", f"launch.stall_timeout_s={SILENT_S}")
# the launcher gives a stopped process 30 s before it kills it
BOUND_S = SILENT_S + 30
SLOWER = 5
"""How many times as long as a start all else may take: both take long on a machine that others use."""


def run_with(tiny_file: str, folder: Path, hit: Callable[[dict[int, int]], None]) -> Ended:
    """Start an endless run of two ranks, and after a few steps do something to its processes."""
    log = folder / "tiny" / "bert" / "result_0.txt"
    began = time.monotonic()
    with launched("train", tiny_file, *words(ENDLESS), LOGDIR=str(folder)) as launcher:
        wait_for_steps(log, 6)
        start_s = time.monotonic() - began
        hit(children(launcher.pid))
        _, said = launcher.communicate(timeout=BOUND_S + SLOWER * start_s)
    return Ended([launcher.returncode], said, read_events(log))


@pytest.mark.parametrize("victim", [0, 1])
def test_a_stopped_rank_ends_the_run_and_is_named_once(tiny_file: str, tmp_path: Path, victim: int) -> None:
    ended = run_with(tiny_file, tmp_path, lambda ranks: os.kill(ranks[victim], signal.SIGSTOP))
    assert ended.codes == [1]
    message = ended.message()
    assert f"rank {victim} of 2 on " in message
    assert f"no sign of life for {SILENT_S} s" in message
    judge = 1 - victim
    assert re.search(
        rf"; last seen in [\w/]+\.py:\d+; rank {judge} waits in distributed/shared_memory.py:\d+; the stacks of",
        message,
    )
    hang = tmp_path / "tiny" / "bert" / "result_0" / "hang"
    assert [path.name for path in sorted(hang.iterdir())] == [f"rank_{judge}.json", f"rank_{judge}.txt"]
    assert "MainThread:\n" in (hang / f"rank_{judge}.txt").read_text()
    recorded = json.loads((hang / f"rank_{judge}.json").read_text())
    assert any("barrier" in entry["profiling_name"] for entry in recorded)


def test_a_run_whose_processes_are_all_paused_continues_afterwards(tiny_file: str, tmp_path: Path) -> None:
    def suspend_and_end(ranks: dict[int, int]) -> None:
        for signal_sent in (signal.SIGSTOP, signal.SIGCONT):
            for pid in ranks.values():
                os.kill(pid, signal_sent)
            time.sleep(2 * SILENT_S)
        os.kill(ranks[1], signal.SIGKILL)

    assert "no sign of life" not in run_with(tiny_file, tmp_path, suspend_and_end).said


def slow_samples(first: int, seconds: float, world: World) -> None:
    """On rank 1, from one step on, make samples take that many seconds to read."""
    if world.rank == 1:
        require_valid, calls = SampleCheck.require_valid, itertools.count(1)

        def slowly(self: SampleCheck, ids: NDArray[np.int64], content: Columns) -> None:
            if next(calls) >= first:
                time.sleep(seconds)
            require_valid(self, ids, content)

        SampleCheck.require_valid = slowly  # type: ignore[method-assign]


def test_a_rank_whose_samples_never_come_is_named_with_its_step(tiny: Tiny, tmp_path: Path) -> None:
    ended = trained(tmp_path, tiny(*ENDLESS, "launch.progress_timeout_s=3"), partial(slow_samples, 4, 3600.0))
    assert ended.codes == [1, 1]
    message = ended.message()
    assert "rank 1 of 2 on " in message
    assert "while loading samples (step 4): no progress for 3 s" in message
    assert "; last seen in loading/loader.py:" in message
    assert "; rank 0 waits in distributed/shared_memory.py:" in message
    stack = (tmp_path / "result_0" / "hang" / "rank_1.txt").read_text()
    assert "slowly" in stack  # the line of the loader's thread in which it sleeps


def test_a_warning_names_the_rank_with_a_slow_disk_and_counts_the_waits(tiny: Tiny, tmp_path: Path) -> None:
    ended = trained(tmp_path, tiny("schedule.max_steps=4"), partial(slow_samples, 1, 1.5))
    assert ended.codes == [0, 0], ended.said
    (warning,) = [line for line in ended.said.splitlines() if "waited" in line]  # one a minute
    assert warning.startswith("warning: rank 1: step 1 waited 1.")
    waits = [row["load_wait_ms"] for row in metrics(tmp_path / "result_0.txt")]
    assert min(waits[:3]) > 500  # the mean of both ranks
