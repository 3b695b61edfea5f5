"""Runs that are really killed and go on through the command line, and what stands on disk between."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bertbench.checkpoint.resumption import Resumption, continue_run, find, restore_files
from bertbench.checkpoint.snapshot import Meta, newest, partial_folder, publish, step_folder, verified
from bertbench.cli import main
from bertbench.common.errors import CheckpointError, ConfigError
from bertbench.config import System
from bertbench.distributed.world import World
from bertbench.results.files import ResultFiles
from bertbench.results.progress import RunProgress
from bertbench.training.train import train
from compliance.judge import judge
from compliance.log import read_events
from tests.ranks import run_ranks
from tests.training.test_run import BERTBENCH, children, metrics, wait_for

SEED = 5
STEPS = 90
# one evaluation in the middle of the run, one at its end
OVERRIDES = (
    f"schedule.max_steps={STEPS}", "evaluation.interval_samples=540", "evaluation.target=0.9",
    "model.hidden_dropout=0.1", "checkpoint.every_steps=10", "optimizer.name=lamb",
)  # fmt: skip
WORDS = [word for override in OVERRIDES for word in ("--set", override)]


def in_one_go(world: World, system: System, log: Path) -> None:
    files = ResultFiles(log)
    if world.leads:
        files.folder.mkdir()
    world.barrier()
    train(system, world, SEED, files if world.leads else None, RunProgress(system, enabled=False))


def without_times(log: Path) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if not key.endswith("_ms")} for row in metrics(log)]


def weights_written(log: Path, step: int) -> dict[str, str]:
    found = newest(ResultFiles(log).snapshots)
    assert found is not None
    assert found[1].step == step
    # .metadata has an identifier of the save
    return {name: sha256 for name, sha256 in found[1].sha256.items() if name.endswith(".distcp")}


@pytest.mark.faults
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc to find the ranks")
def test_a_killed_run_goes_on_to_the_same_end_in_the_same_files(
    tiny: Callable[..., System], tiny_file: str, tmp_path: Path
) -> None:
    environment = {**os.environ, "LOGDIR": str(tmp_path)}
    log = tmp_path / "tiny" / "bert" / "result_0.txt"
    command = [*BERTBENCH, "train", tiny_file, *WORDS, "--resume", "auto"]
    launcher = subprocess.Popen([*command, "--seed", str(SEED)], env=environment, stderr=subprocess.PIPE)
    try:
        wait_for((ResultFiles(log).snapshots / "step_20").exists)
        os.kill(children(launcher.pid)[1], signal.SIGKILL)
        launcher.communicate(timeout=30)
    finally:
        launcher.kill()
    assert len(metrics(log)) < STEPS, "it was not killed in time"
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 3, done.stderr

    straight = tmp_path / "straight" / "result_0.txt"
    straight.parent.mkdir()
    run_ranks(2, in_one_go, tiny(*OVERRIDES), straight)
    assert without_times(log) == without_times(straight)
    assert [row["step"] for row in metrics(log)] == list(range(1, STEPS + 1))
    assert weights_written(log, STEPS) == weights_written(straight, STEPS)
    assert sorted(path.name for path in ResultFiles(log).snapshots.iterdir()) == ["step_80", "step_90"]

    told, expected = (
        [(event.key, event.value) for event in read_events(path) if event.key != "cache_clear"]
        for path in (log, straight)
    )
    # a run that goes on doesn't measure its start
    assert [event for event in told if event[0] != "resumed"] == [event for event in expected if event[0] != "startup"]
    (resumed,) = [event for event in read_events(log) if event.key == "resumed"]
    assert resumed.value == 1
    assert "rank 1" in resumed.metadata["after"]
    findings, sound = judge(log, "5.0.0").findings, judge(straight, "5.0.0").findings
    assert ("resumed", "warning", resumed.line) in {(found.rule, found.severity, found.line) for found in findings}
    assert {found.rule for found in findings} - {found.rule for found in sound} == {"resumed"}
    assert find("auto", None, log.parent) is None  # it came to its own end


@pytest.fixture
def interrupted(tiny: Callable[..., System], tmp_path: Path) -> tuple[ResultFiles, Meta]:
    """A run with two snapshots, steps 4 and 6, whose log and metrics went on after them."""
    files = ResultFiles(tmp_path / "result_0.txt")
    files.snapshots.mkdir(parents=True)
    files.log.write_text(mlperf_line("run_start"))
    files.metrics.write_text("".join(json.dumps({"step": step}) + "\n" for step in range(1, 5)))
    for step in (4, 6):
        meta = Meta(
            step=step, samples=12 * step, seed=SEED, saved_at="", nodes=1, ranks=2, evaluations=((36, 0.25),),
            log_bytes=files.log.stat().st_size, bertbench="", torch="",
            config=tiny().model_dump(mode="json", by_alias=True),
        )  # fmt: skip
        partial_folder(files.snapshots, step).mkdir()
        (partial_folder(files.snapshots, step) / "__0_0.distcp").write_bytes(b"weights")
        publish(files.snapshots, meta, keep=2)
    return files, verified(step_folder(files.snapshots, 4))


def mlperf_line(key: str, **metadata: Any) -> str:
    record = {"time_ms": 1, "event_type": "POINT_IN_TIME", "key": key, "value": 1, "metadata": metadata}
    return f":::MLLOG {json.dumps({'namespace': '', **record})}\n"


def test_only_a_whole_snapshot_is_chosen(
    interrupted: tuple[ResultFiles, Meta], capsys: pytest.CaptureFixture[str]
) -> None:
    files, _ = interrupted
    partial_folder(files.snapshots, 8).mkdir()  # half-written
    (step_folder(files.snapshots, 6) / "__0_0.distcp").write_bytes(b"weighs.")  # damaged
    found = find("auto", None, files.log.parent)
    assert found is not None
    assert (found.meta.step, found.meta.evaluations) == (4, ((36, 0.25),))
    assert "step_6: changed since they were written: __0_0.distcp" in capsys.readouterr().err
    with pytest.raises(CheckpointError, match="changed since they were written"):
        find(str(step_folder(files.snapshots, 6)), None, files.log.parent)
    with pytest.raises(CheckpointError, match="is not a whole snapshot"):
        find(str(partial_folder(files.snapshots, 8)), None, files.log.parent)


def test_auto_goes_on_only_with_a_run_that_was_interrupted(interrupted: tuple[ResultFiles, Meta]) -> None:
    files, _ = interrupted
    folder = files.log.parent
    assert find("never", None, folder) is None
    for resume in ("auto", str(files.log), str(files.folder), str(step_folder(files.snapshots, 6))):
        found = find(resume, None, folder)
        assert found is not None
        assert (found.log, found.meta.step) == (files.log, 6)
    with files.log.open("a") as log:
        log.write(mlperf_line("run_stop", status="aborted", interrupted=True))
    assert find("auto", None, folder) is not None
    with files.log.open("a") as log:
        log.write(mlperf_line("run_stop", status="success"))
    assert find("auto", None, folder) is None
    with pytest.raises(CheckpointError, match="found no started run"):
        find(str(folder / "result_7.txt"), None, folder)


def test_a_run_without_a_whole_snapshot_goes_on_from_its_run_start(
    interrupted: tuple[ResultFiles, Meta], tiny: Callable[..., System]
) -> None:
    files, _ = interrupted
    begun = mlperf_line("seed") + mlperf_line("run_start")
    stop = mlperf_line("run_stop", reason="rank 1: stopped", interrupted=True)
    files.log.write_text(begun + mlperf_line("block_start") + stop)
    shutil.rmtree(files.snapshots)
    files.describe(tiny(), SEED)
    found = find("auto", None, files.log.parent)
    assert found is not None
    assert (found.meta.step, found.meta.seed, found.meta.ranks, found.meta.log_bytes) == (0, 1, 2, len(begun))
    assert found.changes(tiny("data.global_batch_size=14")) == [
        "data.global_batch_size: was 12, is 14", "global batch size: was 12, is 14",
    ]  # fmt: skip
    continue_run(found, tiny())
    assert files.log.read_text().startswith(begun)
    (resumed,) = [event for event in read_events(files.log) if event.key == "resumed"]
    assert (resumed.value, resumed.metadata["step"], resumed.metadata["after"]) == (1, 0, "rank 1: stopped")
    assert files.metrics.read_text() == ""
    files.log.write_text(mlperf_line("init_start"))
    assert find("auto", None, files.log.parent) is None  # it never started
    files.log.write_text(begun)
    (files.folder / "config.json").unlink()
    with pytest.raises(CheckpointError, match="put it back, or start a new run"):
        find("auto", None, files.log.parent)


def test_where_ranks_train_alone_as_many_must_go_on(
    interrupted: tuple[ResultFiles, Meta], tiny: Callable[..., System]
) -> None:
    files, meta = interrupted
    resumption = Resumption(files.log, step_folder(files.snapshots, 4), meta)
    with pytest.raises(ConfigError, match=r"began on 2 ranks, found 3; sync.method diloco .* resume with 2 ranks"):
        resumption.check(tiny("sync.method=diloco", "launch.ranks_per_node=3"), None, allow_config_change=True)
    resumption.check(tiny("sync.method=diloco"), None, allow_config_change=True)


def test_files_are_put_back_to_the_snapshot_and_nothing_is_forgotten(interrupted: tuple[ResultFiles, Meta]) -> None:
    files, meta = interrupted
    before, resumed = files.log.read_text(), mlperf_line("resumed", step=4)
    lost = mlperf_line("block_stop") + resumed + mlperf_line("run_stop", reason="rank 1: stopped")
    files.log.write_text(before + lost)
    with files.metrics.open("a") as lines:
        lines.write('{"step": 5}\n{"ste')
    assert restore_files(files, meta) == {"count": 2, "after": "rank 1: stopped"}
    assert files.log.read_text() == before + resumed
    assert files.lost.read_text() == lost
    assert [json.loads(line)["step"] for line in files.metrics.read_text().splitlines()] == [1, 2, 3, 4]
    assert [path.name for path in files.snapshots.iterdir()] == ["step_4"]
    files.log.write_text("cut")
    with pytest.raises(CheckpointError, match="restore the log"):
        restore_files(files, meta)


def test_a_changed_configuration_is_refused_with_the_difference(
    interrupted: tuple[ResultFiles, Meta], tiny: Callable[..., System]
) -> None:
    files, meta = interrupted
    resumption = Resumption(files.log, step_folder(files.snapshots, 4), meta)
    resumption.check(tiny("launch.ranks_per_node=1", "checkpoint.keep=3"), SEED, allow_config_change=False)
    changed = tiny("optimizer.learning_rate=0.02")
    with pytest.raises(ConfigError, match=r"optimizer\.learning_rate: was 0\.01, is 0\.02\nundo that"):
        resumption.check(changed, None, allow_config_change=False)
    resumption.check(changed, None, allow_config_change=True)
    assert resumption.changes(changed) == ["optimizer.learning_rate: was 0.01, is 0.02"]
    with pytest.raises(ConfigError, match="has seed 5"):
        resumption.check(tiny(), 6, allow_config_change=True)


def test_ranks_that_would_see_other_samples_are_refused_before_anything_is_written(
    interrupted: tuple[ResultFiles, Meta],
    tiny: Callable[..., System],
    tiny_file: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    files, meta = interrupted
    packed = tiny("data.balance=packed").model_dump(mode="json", by_alias=True)
    partial_folder(files.snapshots, 8).mkdir()
    publish(files.snapshots, meta.model_copy(update={"step": 8, "samples": 96, "config": packed}), keep=1)
    before = files.log.read_bytes()
    words = ["--set", "data.balance=packed", "--set", "launch.ranks_per_node=1", "--resume", str(files.log)]
    assert main(["train", tiny_file, *words]) == 2
    assert "begun on 2 ranks, found 1" in capsys.readouterr().err
    assert files.log.read_bytes() == before


def test_a_snapshot_of_what_it_can_t_hold_is_refused(tiny: Callable[..., System]) -> None:
    with pytest.raises(ConfigError, match=r"checkpoint\.every_steps: a snapshot doesn't hold the errors"):
        tiny("checkpoint.every_steps=2", "communication.compression=powersgd")
