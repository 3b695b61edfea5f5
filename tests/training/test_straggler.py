"""Stragglers: a delay in one rank's step is found, with the rank and the phase."""

import time
from pathlib import Path
from typing import Any

import pytest

from bertbench.common.phases import BACKWARD, DATA, FORWARD, OPTIMIZER, OWN, PHASES, WAIT
from bertbench.config import System
from bertbench.distributed.world import World
from bertbench.loading.loader import Loader
from bertbench.runs.metrics import Metrics
from bertbench.runs.straggler import find_straggler, straggler_of
from bertbench.runs.trace import Trace
from bertbench.runs.trace_reader import read_trace
from bertbench.training.whole_trainer import WholeTrainer
from tests.conftest import Answer, Printed, Tiny
from tests.ranks import run_ranks
from tests.runs.written import write_run
from tests.training.steps import sampler_of, whole_trainer

# beside steps of some 5 ms, on cores that other tests use: 30 ms were lost among theirs once. Of data's, the loader
# sleeps a part while the step before computes: 20 ms on a busy machine.
_STEPS, _DELAY_S = 5, 0.1


def slow_in(world: World, folder: Path, rank: int, runs: list[tuple[System, str]]) -> None:
    """Train each system with a delay in one phase of one rank's steps; leave a trace beside NUMBER's log."""
    for number, (system, phase) in enumerate(runs):
        log = folder / f"{number}.txt"
        log.with_suffix("").mkdir(exist_ok=True)
        trace_file = log.with_suffix("") / "trace.json" if world.leads else None
        with (
            Trace(trace_file) as trace,
            Metrics(None, world, trace) as measured,
            whole_trainer(system, world) as trainer,
        ):
            sampler = sampler_of(system)
            if world.rank == rank:
                delay(trainer, sampler, phase)
            for step, loaded in enumerate(Loader(sampler, world.rank, world.device).steps(range(_STEPS)), start=1):
                report = trainer.step(step - 1, loaded.parts)
                measured.record(step, 12 * step, report, 1.0, loaded)
            measured.flush()


def delay(trainer: WholeTrainer, sampler: Any, phase: str) -> None:
    def sleep(*_: object) -> None:
        time.sleep(_DELAY_S)

    if phase == FORWARD:
        trainer.model.layers[0].register_forward_pre_hook(sleep)
    elif phase == OPTIMIZER:
        step = trainer.optimizer.step
        trainer.optimizer.step = lambda *given: (sleep(), step(*given))  # type: ignore[method-assign]
    elif phase == DATA:
        plan = sampler.planner.plan
        sampler.planner.plan = lambda step: (sleep(), plan(step))[1]
    else:  # the first gradient that comes: what follows waits for it
        trainer.model.layers[1].feed_forward_out.weight.register_hook(sleep)


def test_a_delay_in_each_phase_of_a_rank_is_found_by_name(tiny: Tiny, tmp_path: Path) -> None:
    whole, sharded = tiny("clip.mode=bucket"), tiny("optimizer.sharded=true", "optimizer.name=lamb")
    runs = [*((whole, phase) for phase in OWN), *((sharded, phase) for phase in (FORWARD, OPTIMIZER))]
    run_ranks(2, slow_in, tmp_path, 1, runs)
    for number, (_, phase) in enumerate(runs):
        found = straggler_of(tmp_path / f"{number}.txt")
        assert found is not None, phase
        assert (found.rank, found.phase) == (1, phase)
        # beside another test, the rank that isn't slow lost 8 ms in that phase, too
        assert found.phase_behind_ms == pytest.approx(1e3 * _DELAY_S, rel=0.4)
        (phases,) = read_trace(tmp_path / f"{number}.txt").phases
        assert phases.steps == _STEPS - 1  # without the first, which warms up and waits for the first samples
        if phase in (FORWARD, BACKWARD):  # the rank that isn't slow waits for the one that is
            assert phases.ms[WAIT][0] > 0.5e3 * _DELAY_S


def test_the_rank_and_the_phase_follow_from_own_times() -> None:
    """Own times 30, 40, 31: rank 1 is 9.5 ms behind the median of the others, 8 of them in the backward pass."""
    times = {
        "data": [1.0, 0.5, 0.5],
        "forward": [10.0, 12.0, 10.5],
        "backward": [15.0, 23.5, 16.0],
        "optimizer": [4.0, 4.0, 4.0],
    }
    found = find_straggler(times)
    assert found is not None
    assert (found.rank, found.phase) == (1, "backward")
    assert (found.behind_ms, found.phase_behind_ms) == pytest.approx((9.5, 8.0))
    assert find_straggler({**times, "backward": [15.0, 16.0, 16.0]}) is None  # 32.5 beside 30.5: less than a tenth
    assert find_straggler({phase: of[1:2] for phase, of in times.items()}) is None  # alone
    assert find_straggler({}) is None


def test_a_straggler_may_gain_time_in_another_phase() -> None:
    """Rank 0 loses 30 ms in the forward pass and gains 19 ms in the backward pass."""
    found = find_straggler({"forward": [40.0, 10.0], "backward": [20.0, 39.0]})
    assert found is not None
    assert (found.rank, found.phase) == (0, "forward")
    assert (found.behind_ms, found.phase_behind_ms) == (11.0, 30.0)


def test_report_names_the_straggler(tmp_path: Path, answer: Answer, printed: Printed) -> None:
    times = {"data": [1, 1], "forward": [10, 31], "backward": [20, 21], "optimizer": [3, 3], "wait": [22, 0]}
    known = {phase: times.get(phase, [0, 0]) for phase in PHASES}
    log = write_run(tmp_path, steps=0, until_ms=600, status=None)
    file = log.with_suffix("") / "trace.json"
    with Trace(file) as trace:
        trace.phases(2, 1, known, None)
    with file.open("a") as broken:
        broken.write('{"ph":"X","pid":1000001,"tid":0,"name":"forward","dur":"x","args":7},\n{"ph":"X","pi')
    assert "rank 1 is slow in forward" in printed("report", log)
    (content,) = answer("report", log)
    expected = {"rank": 1, "phase": "forward", "behind_ms": 22.0, "phase_behind_ms": 21.0}
    assert content["runs"][0]["straggler"] == expected
