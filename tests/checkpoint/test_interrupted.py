"""Which run and snapshot a resumption chooses, and how it restores the files (tests/faults kills real runs)."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from bertbench.checkpoint.resumption import Resumption, continue_run, find_resumption, restore_files
from bertbench.checkpoint.snapshot_folder import Meta, partial_folder, publish, step_folder, verified
from bertbench.cli.main import main
from bertbench.common.errors import CheckpointError, ConfigError
from bertbench.runs.files import ResultFiles
from compliance.read.log import read_events
from tests.conftest import Captured, Tiny

SEED = 5


@pytest.fixture
def interrupted(tiny: Tiny, tmp_path: Path) -> Resumption:
    """A run with two snapshots, steps 4 and 6, whose log and metrics went on after them, resumed from the first."""
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
    first = step_folder(files.snapshots, 4)
    return Resumption(files.log, first, verified(first))


def found_by(resume: str, folder: Path) -> Resumption:
    found = find_resumption(resume, None, folder)
    assert found is not None
    return found


def mlperf_line(key: str, **metadata: Any) -> str:
    record = {"time_ms": 1, "event_type": "POINT_IN_TIME", "key": key, "value": 1, "metadata": metadata}
    return f":::MLLOG {json.dumps({'namespace': '', **record})}\n"


def test_an_unreadable_newest_snapshot_is_not_replaced_by_an_older_one(
    interrupted: Resumption,
) -> None:
    files = interrupted.files
    damaged = step_folder(files.snapshots, 6) / "__0_0.distcp"
    damaged.unlink()
    damaged.mkdir()
    with pytest.raises(CheckpointError, match=r"__0_0\.distcp: "):
        find_resumption("auto", None, files.log.parent)
    assert found_by(str(step_folder(files.snapshots, 4)), files.log.parent).meta.step == 4


def test_a_run_with_an_unreadable_log_is_not_treated_as_never_started(interrupted: Resumption) -> None:
    log = interrupted.log
    log.unlink()
    log.mkdir()
    with pytest.raises(CheckpointError, match=r"result_0\.txt: "):
        find_resumption("auto", None, log.parent)


def test_only_a_complete_snapshot_is_chosen(interrupted: Resumption, capsys: Captured) -> None:
    files = interrupted.files
    partial_folder(files.snapshots, 8).mkdir()  # half-written
    (step_folder(files.snapshots, 6) / "__0_0.distcp").write_bytes(b"weighs.")  # damaged
    found = found_by("auto", files.log.parent)
    assert (found.meta.step, found.meta.evaluations) == (4, ((36, 0.25),))
    assert "__0_0.distcp" in capsys.readouterr().err
    with pytest.raises(CheckpointError, match="step_6"):
        find_resumption(str(step_folder(files.snapshots, 6)), None, files.log.parent)
    with pytest.raises(CheckpointError, match="step_8"):
        find_resumption(str(partial_folder(files.snapshots, 8)), None, files.log.parent)


def test_only_a_run_that_was_interrupted_resumes(interrupted: Resumption) -> None:
    files = interrupted.files
    folder = files.log.parent
    assert find_resumption("never", None, folder) is None
    named = [str(files.log), str(files.folder), str(step_folder(files.snapshots, 6))]
    for resume in ("auto", *named):
        found = found_by(resume, folder)
        assert (found.log, found.meta.step) == (files.log, 6)
    with files.log.open("a") as log:
        log.write(mlperf_line("run_stop", status="aborted", interrupted=True))
    assert find_resumption("auto", None, folder) is not None
    with files.log.open("a") as log:
        log.write(mlperf_line("run_stop", status="success"))
    assert find_resumption("auto", None, folder) is None
    for resume in named:
        with pytest.raises(CheckpointError, match="has ended: success"):
            find_resumption(resume, None, folder)
    with pytest.raises(CheckpointError, match="result_7"):
        find_resumption(str(folder / "result_7.txt"), None, folder)


def test_auto_takes_the_run_with_the_highest_number_and_no_copy_of_a_log(interrupted: Resumption) -> None:
    log = interrupted.log
    ended = mlperf_line("run_start") + mlperf_line("run_stop", status="success")
    (log.parent / "result_0_old.txt").write_text(ended)
    assert found_by("auto", log.parent).log == log
    for number in (2, 10):
        (log.parent / f"result_{number}.txt").write_text(ended)
    log.rename(log.with_name("result_9.txt"))
    assert find_resumption("auto", None, log.parent) is None


def test_a_run_without_a_complete_snapshot_resumes_from_its_run_start(interrupted: Resumption, tiny: Tiny) -> None:
    files = interrupted.files
    begun = mlperf_line("seed") + mlperf_line("run_start")
    stop = mlperf_line("run_stop", reason="rank 1: stopped", interrupted=True)
    files.log.write_text(begun + mlperf_line("block_start") + stop)
    shutil.rmtree(files.snapshots)
    files.describe(tiny(), SEED)
    found = found_by("auto", files.log.parent)
    assert (found.meta.step, found.meta.seed, found.meta.ranks, found.meta.log_bytes) == (0, 1, 2, len(begun))
    assert "data.global_batch_size: was 12, is 14" in found.changes(tiny("data.global_batch_size=14"))
    continue_run(found, tiny())
    assert files.log.read_text().startswith(begun)
    (resumed,) = [event for event in read_events(files.log) if event.key == "resumed"]
    assert (resumed.value, resumed.metadata["step"], resumed.metadata["after"]) == (1, 0, "rank 1: stopped")
    assert files.metrics.read_text() == ""
    files.log.write_text(mlperf_line("init_start"))
    assert find_resumption("auto", None, files.log.parent) is None  # it never started
    files.log.write_text(begun)
    (files.folder / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"config\.json"):
        find_resumption("auto", None, files.log.parent)


def test_files_are_cut_back_to_the_snapshot_and_none_is_missed(interrupted: Resumption) -> None:
    files, meta = interrupted.files, interrupted.meta
    before, resumed = files.log.read_text(), mlperf_line("resumed", step=4)
    lost = mlperf_line("block_stop") + resumed + mlperf_line("run_stop", reason="rank 1: stopped")
    files.log.write_text(before + lost)
    damaged = "\0" * 12 + "\n"  # as a power cut may leave it
    files.metrics.write_text(damaged + files.metrics.read_text() + '{"step": 5}\n{"ste')
    assert restore_files(files, meta) == (2, "rank 1: stopped")
    assert files.log.read_text() == before + resumed
    assert files.lost.read_text() == lost
    kept = files.metrics.read_text().removeprefix(damaged)
    assert [json.loads(line)["step"] for line in kept.splitlines()] == [1, 2, 3, 4]
    assert [path.name for path in files.snapshots.iterdir()] == ["step_4"]
    files.log.write_text("cut")
    with pytest.raises(CheckpointError, match="restore the log"):
        restore_files(files, meta)


def test_a_changed_configuration_is_refused_with_the_difference(interrupted: Resumption, tiny: Tiny) -> None:
    interrupted.check(tiny("launch.ranks_per_node=1", "checkpoint.keep=3"), SEED, allow_config_change=False)
    changed = tiny("optimizer.learning_rate=0.02")
    with pytest.raises(ConfigError, match=r"optimizer\.learning_rate: was 0\.01, is 0\.02"):
        interrupted.check(changed, None, allow_config_change=False)
    interrupted.check(changed, None, allow_config_change=True)
    assert interrupted.changes(changed) == ["optimizer.learning_rate: was 0.01, is 0.02"]
    with pytest.raises(ConfigError, match="seed 5"):
        interrupted.check(tiny(), 6, allow_config_change=True)


def test_an_unchanged_run_with_a_batch_per_rank_of_a_split_model_can_be_resumed(
    interrupted: Resumption, tiny: Tiny
) -> None:
    batch_of_a_rank = ("data.global_batch_size=null", "data.local_batch=6")
    system = tiny(*batch_of_a_rank, "parallel.pipeline=2", "parallel.microbatches=2")  # on 2 ranks: 1 data-parallel
    meta = interrupted.meta.model_copy(update={"config": system.model_dump(mode="json", by_alias=True)})
    resumption = Resumption(interrupted.log, interrupted.path, meta)
    resumption.check(system, SEED, allow_config_change=False)
    with pytest.raises(ConfigError, match="global batch size: was 6, is 12"):
        resumption.check(tiny(*batch_of_a_rank), SEED, allow_config_change=False)


def test_a_run_that_now_splits_its_model_chooses_its_arithmetic_anew(interrupted: Resumption, tiny: Tiny) -> None:
    split = tiny("parallel.fully_shard=true")
    interrupted.check(split, SEED, allow_config_change=False)
    assert interrupted.keeps_arithmetic(tiny("launch.ranks_per_node=1"))
    assert not interrupted.keeps_arithmetic(split)  # CUDA graphs, for one, need a whole model


@pytest.mark.parametrize("change", ["precision.residual=auto", "clip.mode=before"])
def test_a_changed_configuration_isn_t_overruled_by_the_arithmetic_that_the_run_began_with(
    interrupted: Resumption, tiny: Tiny, change: str
) -> None:
    assert interrupted.keeps_arithmetic(tiny())
    assert not interrupted.keeps_arithmetic(tiny(change))


def test_ranks_that_would_see_other_samples_are_refused_before_anything_is_written(
    interrupted: Resumption,
    tiny: Tiny,
    tiny_file: str,
    capsys: Captured,
) -> None:
    files, meta = interrupted.files, interrupted.meta
    packed = tiny("data.balance=packed").model_dump(mode="json", by_alias=True)
    partial_folder(files.snapshots, 8).mkdir()
    publish(files.snapshots, meta.model_copy(update={"step": 8, "samples": 96, "config": packed}), keep=1)
    before = files.log.read_bytes()
    words = ["--set", "data.balance=packed", "--set", "launch.ranks_per_node=1", "--resume", str(files.log)]
    assert main(["train", tiny_file, *words]) == 2
    assert "2 ranks" in capsys.readouterr().err
    assert files.log.read_bytes() == before
