"""100 steps are 50, a kill -9 and 50 more, through the command line: optimizers, balance methods, one and two ranks."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bertbench.balance.plan import METHODS
from bertbench.config import System
from bertbench.distributed.world import World
from bertbench.results.files import ResultFiles
from tests.checkpoint.test_interrupted import in_one_go, weights_written, without_times
from tests.ranks import run_ranks
from tests.training.test_run import BERTBENCH, children, metrics, wait_for

STEPS, TAKEN = 100, 50
OVERRIDES = (
    f"schedule.max_steps={STEPS}", f"checkpoint.every_steps={TAKEN}", "evaluation.interval_samples=600",
    "evaluation.target=0.9", "model.hidden_dropout=0.1",
)  # fmt: skip


def all_in_one_go(world: World, systems: list[System], logs: list[Path]) -> None:
    for system, log in zip(systems, logs, strict=True):
        in_one_go(world, system, log)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc to find the ranks")
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("optimizer", ["adam", "lamb"])
def test_fifty_steps_a_kill_and_fifty_more_are_a_hundred(
    tiny: Callable[..., System], tiny_file: str, tmp_path: Path, optimizer: str, ranks: int
) -> None:
    common = (*OVERRIDES, f"optimizer.name={optimizer}", f"launch.ranks_per_node={ranks}")
    choices = [(*common, f"data.balance={method}") for method in METHODS]
    straight = [tmp_path / method / "straight" / "result_0.txt" for method in METHODS]
    for log in straight:
        log.parent.mkdir(parents=True)
    run_ranks(ranks, all_in_one_go, [tiny(*overrides) for overrides in choices], straight)
    for overrides, expected in zip(choices, straight, strict=True):
        log = expected.parents[1] / "killed" / "result_0.txt"
        log.parent.mkdir()
        killed_after_its_snapshot(log, tiny_file, overrides)
        assert TAKEN <= len(metrics(log)) < STEPS, "it was not killed in time"
        done = subprocess.run(
            [*command(log, tiny_file, overrides), "--resume", str(log)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 3, done.stderr  # no target within 100 steps
        assert without_times(log) == without_times(expected), overrides
        assert weights_written(log, STEPS) == weights_written(expected, STEPS), overrides


def killed_after_its_snapshot(log: Path, system: str, overrides: tuple[str, ...]) -> None:
    launcher = subprocess.Popen([*command(log, system, overrides), "--seed", "5"], stderr=subprocess.DEVNULL)
    try:
        wait_for((ResultFiles(log).snapshots / f"step_{TAKEN}").exists)
        os.kill(max(children(launcher.pid).items(), default=(0, launcher.pid))[1], signal.SIGKILL)
        launcher.wait(60)
    finally:
        launcher.kill()


def command(log: Path, system: str, overrides: tuple[str, ...]) -> list[str]:
    settings = [word for override in overrides for word in ("--set", override)]
    return [*BERTBENCH, "train", system, "--result", str(log), *settings]
