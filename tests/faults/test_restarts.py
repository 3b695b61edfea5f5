"""Runs that lose ranks or receive SIGTERM, and still end as undisturbed runs would. These tests take minutes."""

import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bertbench.checkpoint.snapshot_folder import newest
from bertbench.runs.files import ResultFiles
from bertbench.runs.ledger import ledger
from bertbench.runs.trace_format import BUCKETS
from bertbench.runs.trace_reader import read_trace
from compliance import judge_log
from compliance.read.log import read_events
from tests.faults.kill import run_and_kill
from tests.ranks import LIMIT_S
from tests.whole_runs import children, finished, launched, metrics, wait_for_steps, words

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc to find the ranks"),
]
SEED = 5
_APART = ("cache_clear", "resumed", "startup", "energy")  # a run that goes on measures neither its start nor its energy
_RATES = ("tflops_per_device", "mfu")  # computed from a step's time
_USES = ("cores_busy", "memory_gb", "peak_memory_gb")


def lasting(steps: int, *more: str) -> list[str]:
    """Return the arguments of a run of that many steps, whose only evaluation, at the end, reaches the target."""
    overrides = (
        f"schedule.max_steps={steps}", f"evaluation.interval_samples={12 * steps}", "evaluation.target=0.001",
        "model.hidden_dropout=0.1", f"checkpoint.every_steps={steps // 60}", *more,
    )  # fmt: skip
    return ["--seed", str(SEED), *words(overrides)]


def assert_as_if_undisturbed(log: Path, *command: str) -> None:
    """Assert the command's losses and weights, bit for bit, and its log except for the resumptions."""
    straight = log.parent / "straight" / "result_0.txt"
    straight.parent.mkdir()
    done = finished("train", *command, "--result", straight)
    assert done.returncode == 0, done.stderr
    assert without_times(log) == without_times(straight)
    assert [row["step"] for row in metrics(log)] == list(range(1, len(metrics(straight)) + 1))
    assert last_snapshot(log) == last_snapshot(straight)
    assert events(log) == events(straight)


def events(log: Path) -> list[tuple[str, Any]]:
    """Return the events of a log without those that a resumption adds."""
    return [(event.key, event.value) for event in read_events(log) if event.key not in _APART]


def without_times(log: Path) -> list[dict[str, Any]]:
    rows = []
    for row in metrics(log):
        measured = {*_RATES, *_USES}
        untimed = {key: value for key, value in row.items() if not key.endswith("_ms") and key not in measured}
        rows.append(untimed)
    return rows


def last_snapshot(log: Path) -> tuple[int, dict[str, str]]:
    """Return its step, and the checksums of its tensors; .metadata also has an identifier of the save."""
    found = newest(ResultFiles(log).snapshots)
    meta = found[1]
    return meta.step, {name: sha256 for name, sha256 in meta.sha256.items() if name.endswith(".distcp")}


def resumptions(log: Path) -> list[tuple[int, str]]:
    """Which, and after what."""
    return [(event.value, event.metadata["after"]) for event in read_events(log) if event.key == "resumed"]


def test_a_run_whose_ranks_are_killed_20_times_ends_as_an_undisturbed_one(tiny_file: str, tmp_path: Path) -> None:
    run = [tiny_file, *lasting(2000)]
    log = tmp_path / "result_0.txt"
    code, made, began = run_and_kill(run, log, kills=20, seed=7)
    assert code == 0
    (stop,) = [event for event in read_events(log) if event.key == "run_stop"]
    spent = ledger(read_trace(log).activities)
    assert sum(spent.values()) == pytest.approx(stop.time_ms / 1e3 - began, abs=0.1)
    assert {bucket for bucket, seconds in spent.items() if seconds} == {*BUCKETS} - {"queued"}
    assert [number for number, _ in resumptions(log)] == list(range(1, 21))
    assert [cause for _, cause in resumptions(log)] == [f"rank {rank} was killed by SIGKILL" for rank in made]
    assert_as_if_undisturbed(log, *run)
    verdict = judge_log(log, "5.0.0")
    (found,) = [unchecked.reason for unchecked in verdict.not_applied if unchecked.rule == "resumed"]
    assert "resumptions [1, 2, 3" in found
    assert "the last from a snapshot after" in found
    starts = [event.time_ms for event in read_events(log) if event.key == "resumed"]
    assert verdict.facts.time_to_train_s > (starts[-1] - starts[0]) / 1e3


def test_a_rank_that_receives_sigterm_stops_all_with_a_snapshot_and_code_75(tiny_file: str, tmp_path: Path) -> None:
    run = [tiny_file, *lasting(600, "checkpoint.every_steps=null")]
    log = tmp_path / "run" / "result_0.txt"
    log.parent.mkdir()
    with launched("train", *run, "--result", log) as launcher:
        wait_for_steps(log, 20)
        os.kill(children(launcher.pid)[1], signal.SIGUSR1)
        _, said = launcher.communicate(timeout=LIMIT_S)
    assert launcher.returncode == 75, said
    stopped = len(metrics(log))
    assert stopped < 600
    assert last_snapshot(log)[0] == stopped
    (stop,) = [event for event in read_events(log) if event.key == "run_stop"]
    assert stop.metadata == {"status": "aborted", "reason": "rank 1: stopped by SIGUSR1", "interrupted": True} | {
        key: stop.metadata[key] for key in ("file", "lineno")
    }

    # a mistake of the user's ends it at once, restarts or not
    wrong = ["--allow-config-change", *words(("model.feed_forward_size=29", "launch.max_restarts=2"))]
    copy = tmp_path / "copy" / "result_0.txt"
    shutil.copytree(log.parent, copy.parent)
    done = finished("train", *run, "--result", copy, "--resume", "auto", *wrong)
    assert done.returncode == 2, done.stderr
    assert "doesn't fit this run" in done.stderr
    assert "restarts left" not in done.stderr

    at_the_end = words(["checkpoint.every_steps=600"])
    done = finished("train", *run, "--result", log, "--resume", "auto", *at_the_end)
    assert done.returncode == 0, done.stderr
    assert resumptions(log) == [(1, "rank 1: stopped by SIGUSR1")]
    assert_as_if_undisturbed(log, *run, *at_the_end)
    # it is over: the same command once more finds nothing to do
    before = log.read_bytes()
    assert finished("train", *run, "--result", log, "--resume", "auto").returncode == 0
    assert log.read_bytes() == before


def test_a_run_that_dies_of_the_same_fault_after_the_same_step_three_times_is_given_up(
    tiny_file: str, tmp_path: Path
) -> None:
    log = tmp_path / "result_0.txt"
    diverging = ("optimizer.learning_rate=1e30", "clip.mode=none", "launch.max_restarts=9")
    done = finished("train", tiny_file, *words(diverging), "--result", log)
    assert done.returncode == 1
    assert "restarts left: 7" in done.stderr
    assert "restarts left: 6" not in done.stderr
    last = len(metrics(log))
    assert f"3 times without a step after {last}: not started again" in done.stderr
    resumed = [event for event in read_events(log) if event.key == "resumed"]
    # there was no snapshot: the same log goes on from its run_start
    assert [(event.value, event.metadata["step"]) for event in resumed] == [(1, 0), (2, 0)]
    assert [row["step"] for row in metrics(log)] == list(range(1, last + 1))
    keys = [event.key for event in read_events(log)]
    assert keys.count("run_start") == keys.count("run_stop") == 1


def test_under_torchrun_restarted_ranks_resume_their_run(tiny_file: str, tmp_path: Path) -> None:
    run = [tiny_file, *lasting(600)]
    log = tmp_path / "tiny" / "bert" / "result_0.txt"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    torchrun = ["torch.distributed.run", "--nproc-per-node=2", "--master-addr=127.0.0.1", f"--master-port={port}"]
    ranks = ["-m", "bertbench", "train", *run]
    launcher = subprocess.Popen(
        [sys.executable, "-m", *torchrun, "--max-restarts=2", *ranks], env={**os.environ, "LOGDIR": str(tmp_path)}
    )
    try:
        for victim, steps in ((1, 100), (0, 300)):
            wait_for_steps(log, steps)
            os.kill(children(launcher.pid)[victim], signal.SIGKILL)
        assert launcher.wait(LIMIT_S) == 0
    finally:
        launcher.terminate()
        launcher.wait()
    assert [number for number, _ in resumptions(log)] == [1, 2]
    assert [path.name for path in log.parent.glob("result_*.txt")] == ["result_0.txt"]
    assert_as_if_undisturbed(log, *run)
