"""The data that trackers store about a run, read back by their own libraries; missing trackers are skipped."""

import importlib.util
import json
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bertbench.cli.main import main
from bertbench.runs.run_summary import read_summary
from bertbench.runs.trackers import final_numbers, tracked_name, tracked_steps
from tests.conftest import Printed
from tests.runs.written import START_S, row, write_run

STEPS = {1: 9.0, 2: 8.0, 3: 7.0, 4: 6.0, 5: 5.0, 6: 4.0}
"""The loss of the written run, by step."""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return write_run(tmp_path / "toy" / "bert")


def test_each_step_has_its_time_and_an_evaluation_belongs_to_the_step_before_it(log: Path) -> None:
    run = read_summary(log)
    steps = tracked_steps(run)
    assert [step.step for step in steps] == [1, 2, 3, 4, 5, 6]
    # a block begins at 0.5 s, the next at 4 s; a step takes 1 s
    assert [step.time_s - START_S for step in steps] == pytest.approx([1.5, 2.5, 3.5, 5, 6, 7])
    assert [step.values.get("eval/accuracy") for step in steps] == [None, None, 0.25, None, None, 0.5]
    assert steps[0].values["train/samples_per_s"] == 100
    assert final_numbers(run) == {
        "time_to_train_s": 8.0, "best_accuracy": 0.5, "samples_to_train": 600.0, "samples_per_s": 75.0,
    }  # fmt: skip


def test_a_run_that_still_trains_has_its_steps_so_far_and_no_half_written_one(tmp_path: Path) -> None:
    log = write_run(tmp_path / "toy" / "bert", steps=2, until_ms=600, status=None)
    with (log.with_suffix("") / "metrics.jsonl").open("a") as metrics:
        metrics.write(row(3)[:20])
    run = read_summary(log)
    assert [step.step for step in tracked_steps(run)] == [1, 2]
    assert "time_to_train_s" not in final_numbers(run)


@pytest.mark.parametrize("platform", ["/tmp/x", "../..", "a/../../b", ".."])
def test_a_foreign_log_names_no_path_of_its_own(log: Path, platform: str) -> None:
    run = replace(read_summary(log), system=platform)
    place = Path("/out", tracked_name(run))
    assert len(place.parts) == 5
    assert ".." not in place.parts


def tracked(log: Path, to: str) -> Path:
    """Copy a run while it trains, and after it has ended, where the second copy replaces the first."""
    out = log.with_name("out")
    for steps, status in ((2, None), (6, "success")):
        write_run(log.parent, steps=steps, status=status)
        assert main(["track", str(log), "--to", to, "--out", str(out)]) == 0
    return out


def test_tensorboard_reads_back_what_the_run_measured(log: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # noqa: PLC0415

    events = EventAccumulator(str(tracked(log, "tensorboard") / "toy" / "bert" / "result_0"))
    events.Reload()
    losses = events.Scalars("train/loss")
    assert {event.step: event.value for event in losses} == STEPS
    assert len(losses) == 6
    assert losses[0].wall_time == pytest.approx(START_S + 1.5)
    assert [(event.step, event.value) for event in events.Scalars("eval/accuracy")] == [(3, 0.25), (6, 0.5)]
    (parameters,) = events.Tensors(
        "parameters/text_summary" if "parameters/text_summary" in events.Tags() else "parameters"
    )
    text = parameters.tensor_proto.string_val[0].decode()
    assert "| optimizer.learning_rate | 0.1 |" in text
    assert '| run.commit | "abcdef0123456789" |' in text
    (ended,) = events.Tensors("status")
    assert json.loads(ended.tensor_proto.string_val[0])["status"] == "success"


def test_mlflow_reads_back_what_the_run_measured(log: Path) -> None:
    pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    from mlflow.tracking import MlflowClient  # noqa: PLC0415

    client = MlflowClient(tracking_uri=f"sqlite:///{tracked(log, 'mlflow') / 'mlflow.db'}")
    (run,) = client.search_runs([client.get_experiment_by_name("toy").experiment_id])  # the first is deleted
    assert run.info.run_name == "bert/result_0"
    assert run.info.status == "FINISHED"
    history = client.get_metric_history(run.info.run_id, "train/loss")
    assert {metric.step: metric.value for metric in history} == STEPS
    assert [metric.step for metric in client.get_metric_history(run.info.run_id, "eval/accuracy")] == [3, 6]
    assert run.data.params["optimizer.learning_rate"] == "0.1"
    assert run.data.params["run.commit"] == "abcdef0123456789"
    assert run.data.metrics["time_to_train_s"] == 8


def records(path: Path) -> dict[str, list[Any]]:
    """The records of a .wandb file by kind: W&B's own messages, each behind a header of LevelDB's log format."""
    from wandb.proto import wandb_internal_pb2  # noqa: PLC0415

    content, at, found = path.read_bytes(), 7, defaultdict(list)
    assert len(content) < 32768, "one block, in which records are whole"
    while at < len(content):
        record, length = wandb_internal_pb2.Record(), int.from_bytes(content[at + 4 : at + 6], "little")
        record.ParseFromString(content[at + 7 : at + 7 + length])
        found[record.WhichOneof("record_type")].append(record)
        at += 7 + length
    return found


def test_wandb_reads_back_what_the_run_measured(log: Path) -> None:
    pytest.importorskip("wandb")
    (path,) = tracked(log, "wandb").rglob("*.wandb")
    found = records(path)
    rows = [
        {
            item.nested_key[0] if item.nested_key else item.key: json.loads(item.value_json)
            for item in record.history.item
        }
        for record in found["history"]
    ]
    assert {row["_step"]: row["train/loss"] for row in rows} == STEPS
    assert {row["_step"]: row["eval/accuracy"] for row in rows if "eval/accuracy" in row} == {3: 0.25, 6: 0.5}
    (run,) = found["run"]
    config = {item.key: json.loads(item.value_json) for item in run.run.config.update}
    assert (config["optimizer.learning_rate"], config["run.commit"]) == (0.1, "abcdef0123456789")
    assert run.run.display_name == "toy/bert/result_0"
    assert found["exit"][0].exit.exit_code == 0


def test_a_tracker_that_is_not_installed_is_one_clear_line(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: Printed
) -> None:
    to, real = "mlflow", importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == to else real(name, *more))
    monkeypatch.setenv("LOGDIR", str(tmp_path / "runs"))
    (complaint,) = printed("track", log, "--to", to, code=2).splitlines()
    assert complaint.startswith(f"bertbench: {to} needs {to}")
    assert complaint.endswith(f"pip install -e '.[{to}]'")
    assert not (tmp_path / "runs").exists()  # nothing was begun


def test_two_logs_with_the_same_name_are_refused(tmp_path: Path, printed: Printed) -> None:
    pytest.importorskip("tensorboard")
    to = ["--to", "tensorboard", "--out", tmp_path / "out"]
    twins = [write_run(tmp_path / name / "bert") for name in "ab"]
    assert "toy/bert/result_0: two logs have this name" in printed("track", *twins, *to, code=2)
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_written_is_one_clear_line(log: Path, tmp_path: Path, printed: Printed) -> None:
    pytest.importorskip("tensorboard")
    (tmp_path / "out").write_text("a file")
    (complaint,) = printed("track", log, "--to", "tensorboard", "--out", tmp_path / "out", code=1).splitlines()
    assert "tensorboard couldn't record it" in complaint
    assert "name another folder with --out" in complaint
