"""metrics.jsonl, as steps are recorded."""

import json
import math
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bertbench.common.errors import RunError
from bertbench.common.phases import BACKWARD, FORWARD
from bertbench.distributed.world import World
from bertbench.loading.loader import LoadedStep
from bertbench.runs.metrics import Metrics, StepReport
from tests.ranks import run_ranks


def test_over_a_slow_link_several_steps_are_written_at_once(tmp_path: Path) -> None:
    assert run_ranks(2, lines_after_steps, tmp_path / "metrics.jsonl")[0] == [0, 2, 2, 4, 4, 5]


def lines_after_steps(world: World, path: Path) -> list[int]:
    """Lines in the file after each of five steps, and after a flush."""
    counts = []
    with Metrics(path if world.leads else None, world, every=2) as metrics:
        for step in range(1, 6):
            record(metrics, step)
            counts.append(lines(path))
        metrics.flush()
        counts.append(lines(path))
    return counts


def test_the_first_step_s_use_leaves_the_initialisation_out(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    run_ranks(1, record_a_step_that_waits_after_a_busy_start, path)
    assert json.loads(path.read_text())["cores_busy"] < 0.5


def record_a_step_that_waits_after_a_busy_start(world: World, path: Path) -> None:
    with Metrics(path, world) as metrics:
        until = time.process_time() + 0.4
        while time.process_time() < until:
            pass
        metrics.start()
        time.sleep(0.1)
        record(metrics, 1)


def test_on_a_device_a_step_takes_the_time_of_its_phases_there(tmp_path: Path) -> None:
    first, *others = run_ranks(1, step_ms_of_phases, tmp_path / "metrics.jsonl")[0]
    assert first > 10
    assert others == [first, first]


def step_ms_of_phases(world: World, path: Path) -> list[float]:
    """Return `step_ms` of three steps that took the host 1 ms to launch, and whose phases took over 10 ms each."""
    elsewhere = replace(world, device=torch.device("meta"))  # any device but the host's own memory
    with Metrics(path, elsewhere) as metrics:
        for step in range(1, 5):
            for phase in (FORWARD, BACKWARD):
                metrics.phases.enter(phase)
                time.sleep(0.006)
            metrics.phases.enter(None)
            record(metrics, step)
        metrics.flush()
    _, *timed = (json.loads(line)["step_ms"] for line in path.read_text().splitlines())  # the first warms up
    return timed


def test_a_gradient_that_is_not_finite_on_one_rank_ends_all_ranks(tmp_path: Path) -> None:
    expected = "the loss of step 1 is 2.0, but its gradient is not finite; lower optimizer.learning_rate or lengthen"
    for said in run_ranks(2, fault_of_a_broken_norm, tmp_path / "metrics.jsonl"):
        assert said.startswith(expected)


def fault_of_a_broken_norm(world: World, path: Path) -> str:
    """Return what this rank says of a step whose norm is infinite on rank 1 alone, as if ranks trained separately."""
    with Metrics(path if world.leads else None, world) as metrics, pytest.raises(RunError) as caught:
        record(metrics, 1, norm=math.inf if world.rank else 1.0)
    return str(caught.value)


def record(metrics: Metrics, step: int, norm: float = 1.0) -> None:
    one = torch.ones(())
    metrics.record(step, 12 * step, StepReport(one, torch.tensor(norm), 0.1, one, None), 1.0, LoadedStep([], 1.0))


def lines(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0
