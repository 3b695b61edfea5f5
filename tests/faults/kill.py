"""Kill random ranks of one run at random times, and let it end.

A kill strikes between the start of the ranks and some seconds after their first step: in imports, while they meet,
while the snapshot is loaded, in steps, while a snapshot is written. The first waits for the clock to run; the next
three come at once, so that the run dies four times after the same step.
"""

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from bertbench.config import load_system
from tests.ranks import LIMIT_S
from tests.whole_runs import BERTBENCH, children, wait_for_steps

_LATEST = 1.3  # moment of a kill, as a multiple of the time that the first start took
_AT_ONCE = 3


class Killed(NamedTuple):
    """A run whose ranks were killed."""

    code: int
    kills: list[int]
    """The rank of each."""
    began: float
    """When its launcher was started, in seconds since 1970."""


def run_and_kill(words: Sequence[str], log: Path, kills: int, seed: int) -> Killed:
    """Train with these words into `log`, and kill that many ranks.

    Raises AssertionError if the run ends before all kills were made.
    """
    random, count = Random(seed), load_system(words[0]).launch.ranks_per_node
    command = [*BERTBENCH, "train", *words, "--result", str(log), "--set", f"launch.max_restarts={kills}"]
    submitted = time.time()
    launcher = subprocess.Popen(command)
    made: list[int] = []
    try:
        ranks = started(launcher, count, {})
        began = time.monotonic()
        wait_for_steps(log, 1)
        start_up = time.monotonic() - began
        for number in range(kills):
            if number:
                ranks, began = started(launcher, count, ranks), time.monotonic()
            latest = _LATEST * start_up if number > _AT_ONCE else 0.0
            victim, moment = random.choice(sorted(ranks)), random.uniform(0, latest)
            time.sleep(max(0.0, began + moment - time.monotonic()))
            os.kill(ranks[victim], signal.SIGKILL)
            made.append(victim)
        return Killed(launcher.wait(2 * LIMIT_S), made, submitted)
    finally:
        launcher.terminate()
        launcher.wait()


def started(launcher: subprocess.Popen[Any], count: int, before: dict[int, int]) -> dict[int, int]:
    """Return the process ids by rank, once all ranks have started and none of them is in `before`."""
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        assert launcher.poll() is None, f"the run ended with {launcher.returncode} before all kills were made"
        try:
            found = children(launcher.pid)
        except OSError:  # one ended as it was looked at
            found = {}
        if len(found) == count and not set(found.values()) & set(before.values()):
            return found
        time.sleep(0.01)
    raise AssertionError(f"no ranks within {LIMIT_S} s")
