"""A rank that is stopped, stuck, or starved ends the run within the bound, with one message that names it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from bertbench.config import System
from bertbench.progress import RunProgress
from bertbench.rank import as_rank
from bertbench.rendezvous import launched_ranks
from bertbench.results import ResultFiles
from bertbench.train import train
from compliance.log import Event, read_events
from tests.ranks import ended_ranks
from tests.test_run import BERTBENCH, children, metrics, wait_for

pytestmark = [pytest.mark.faults, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc to find the ranks")]

SILENT_S = 4
ENDLESS = ("schedule.max_steps=100000", "evaluation.interval_samples=600000", f"launch.stall_timeout_s={SILENT_S}")
# the launcher gives a stopped process 30 s before it kills it; the rest is for a machine that others use
BOUND_S = SILENT_S + 30 + 30


class Ended(NamedTuple):
    """How a run ended."""

    said: str
    events: list[Event]

    def stop(self) -> Event:
        (stop,) = [event for event in self.events if event.key == "run_stop"]
        return stop


def run_with(tiny_file: str, folder: Path, hit: Callable[[dict[int, int]], None]) -> Ended:
    """Start an endless run of two ranks, and after a few steps do something to its processes."""
    words = [word for setting in ENDLESS for word in ("--set", setting)]
    env = {**os.environ, "LOGDIR": str(folder)}
    launcher = subprocess.Popen([*BERTBENCH, "train", tiny_file, *words], env=env, stderr=subprocess.PIPE, text=True)
    log = folder / "tiny" / "bert" / "result_0.txt"
    try:
        wait_for(lambda: (log.with_suffix("") / "metrics.jsonl").exists() and len(metrics(log)) > 5)
        began = time.monotonic()
        hit(children(launcher.pid))
        _, said = launcher.communicate(timeout=BOUND_S)
    finally:
        launcher.kill()
    assert launcher.returncode == 1
    assert "Traceback" not in said, said
    print(f"ended after {time.monotonic() - began:.1f} s")
    return Ended(said, read_events(log))


@pytest.mark.parametrize("victim", [0, 1])
def test_a_stopped_rank_ends_the_run_and_is_named_once(tiny_file: str, tmp_path: Path, victim: int) -> None:
    ended = run_with(tiny_file, tmp_path, lambda ranks: os.kill(ranks[victim], signal.SIGSTOP))
    (told,) = [line for line in ended.said.splitlines() if line.startswith("bertbench: ")]
    assert f"rank {victim} of 2 on " in told
    assert f"no sign of life for {SILENT_S} s" in told
    stop = ended.stop()
    assert (stop.metadata["status"], stop.metadata["interrupted"]) == ("aborted", True)
    assert f"bertbench: {stop.metadata['reason']}" == told


def test_a_run_that_is_stopped_as_a_whole_goes_on_afterwards(tiny_file: str, tmp_path: Path) -> None:
    def suspend_and_end(ranks: dict[int, int]) -> None:
        for signal_sent in (signal.SIGSTOP, signal.SIGCONT):
            for pid in ranks.values():
                os.kill(pid, signal_sent)
            time.sleep(2 * SILENT_S)
        os.kill(ranks[1], signal.SIGKILL)

    assert "no sign of life" not in run_with(tiny_file, tmp_path, suspend_and_end).said


def starved(system: System, log: Path) -> None:
    """One rank of a run; on rank 1 the samples of step 4 never come."""
    ranks = launched_ranks(os.environ)
    assert ranks is not None
    with as_rank(system, ranks) as world:
        files = ResultFiles(log) if world.leads else None
        if files:
            files.folder.mkdir()
        world.barrier()
        if world.rank == 1:
            _never_after(3)
        train(system, world, 5, files, RunProgress(system, enabled=False))


def _never_after(steps: int) -> None:
    from bertbench.data import loader

    read, calls = loader.gather, iter(range(10**6))

    def gather(*arguments: object) -> object:
        if next(calls) >= steps:
            time.sleep(3600)
        return read(*arguments)  # type: ignore[arg-type]

    loader.gather = gather  # type: ignore[assignment]


def test_a_rank_whose_samples_never_come_is_named_with_its_step(tiny: Callable[..., System], tmp_path: Path) -> None:
    log = tmp_path / "result_0.txt"
    system = tiny(*ENDLESS, "launch.progress_timeout_s=3")
    codes, said = ended_ranks(2, BOUND_S, starved, system, log)
    assert codes == [1, 1], said
    (told,) = [line for line in said.splitlines() if line.startswith("bertbench: ")]
    assert "rank 1 of 2 on " in told
    assert "while loading samples (step 4): no progress for 3 s" in told
    (stop,) = [event for event in read_events(log) if event.key == "run_stop"]
    assert f"bertbench: {stop.metadata['reason']}" == told
