"""Kill random ranks of one run at random times, and let it end: `python -m tests.faults.kill SYSTEM --kill-seed 7`.

A kill strikes between the start of the ranks and some seconds after their first step: in imports, while they meet,
while the snapshot is loaded, in steps, while a snapshot is written. The first one waits for the clock to run.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from bertbench.config import load_system
from tests.training.test_run import BERTBENCH, children, metrics, wait_for

_LATEST = 1.3
"""Latest moment of a kill, as a multiple of the time that the first start took."""
_START_LIMIT_S = 180


class Killed(NamedTuple):
    """A run whose ranks were killed."""

    code: int
    kills: list[tuple[int, float]]
    """Rank, and seconds after its start."""
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
    made: list[tuple[int, float]] = []
    try:
        ranks = started(launcher, count, {})
        began = time.monotonic()
        wait_for(lambda: log.with_suffix("").joinpath("metrics.jsonl").exists() and bool(metrics(log)), _START_LIMIT_S)
        start_up = time.monotonic() - began
        for number in range(kills):
            if number:
                ranks, began = started(launcher, count, ranks), time.monotonic()
            victim, moment = random.choice(sorted(ranks)), random.uniform(0, _LATEST * start_up)
            time.sleep(max(0.0, began + moment - time.monotonic()))
            os.kill(ranks[victim], signal.SIGKILL)
            made.append((victim, time.monotonic() - began))
        return Killed(launcher.wait(_START_LIMIT_S + 600), made, submitted)
    finally:
        launcher.terminate()
        launcher.wait()


def started(launcher: subprocess.Popen[Any], count: int, before: dict[int, int]) -> dict[int, int]:
    """Process ids by rank, once all ranks are there and none of them is of `before`."""
    end = time.monotonic() + _START_LIMIT_S
    while time.monotonic() < end:
        assert launcher.poll() is None, f"the run ended with {launcher.returncode} before all kills were made"
        try:
            found = children(launcher.pid)
        except OSError:  # one ended as it was looked at
            found = {}
        if len(found) == count and not set(found.values()) & set(before.values()):
            return found
        time.sleep(0.01)
    raise AssertionError(f"no ranks within {_START_LIMIT_S} s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("system")
    parser.add_argument("--kill-seed", type=int, default=7, help="of ranks and moments (default 7)")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--log", type=Path, default=Path("runs/killed/result_0.txt"))
    arguments, others = parser.parse_known_args()
    arguments.log.parent.mkdir(parents=True, exist_ok=True)
    code, made, _ = run_and_kill([arguments.system, *others], arguments.log, arguments.kills, arguments.kill_seed)
    for number, (rank, seconds) in enumerate(made, start=1):
        print(f"kill {number}: rank {rank}, {seconds:.1f} s after its start")
    print(f"{arguments.log}: the run ended with {code}")
    sys.exit(code)
