"""The ledger of a run's wall clock, from traces written by hand."""

import json
from pathlib import Path
from typing import Any

import pytest

from bertbench.runs.ledger import ledger
from bertbench.runs.trace_format import RUN
from bertbench.runs.trace_reader import read_trace


def spent(folder: Path, *records: dict[str, Any] | str) -> dict[str, float]:
    """The buckets that aren't empty."""
    (folder / "result_0").mkdir(exist_ok=True)
    lines = ["[", *(record if isinstance(record, str) else f"{json.dumps(record)}," for record in records)]
    (folder / "result_0" / "trace.json").write_text("".join(f"{line}\n" for line in lines))
    found = ledger(read_trace(folder / "result_0.txt").activities)
    return {bucket: pytest.approx(seconds) for bucket, seconds in found.items() if seconds}


def at(time: float, doing: str, **more: Any) -> dict[str, Any]:
    return {"ph": "B", "name": doing, "pid": RUN, "tid": 0, "ts": 1e6 * time, "args": more}


def resumed(time: float, step: int, sign: float | None) -> dict[str, Any]:
    of_run = {"pid": RUN, "tid": 0, "ts": 1e6 * time}
    return {"ph": "i", "name": "resumed", **of_run, "args": {"step": step, "sign": sign}}


START = [at(100, "start-up"), at(103, "compile"), at(105, "start-up"), at(106, "training")]


def test_an_uninterrupted_run_is_start_up_compilation_training_waiting_snapshots_and_evaluations(
    tmp_path: Path,
) -> None:
    assert spent(
        tmp_path,
        *START,
        at(116, "snapshot", step=10, waited_s=1.5),
        at(117, "training", waited_s=1.5),
        at(127, "evaluation", waited_s=2.0),
        at(130, "training", waited_s=2.0),
        at(130, "idle", waited_s=2.0, status="success"),
        at(190, "idle"),  # the clock ended with the status
    ) == {"start-up": 4, "compile": 2, "training": 18, "waiting": 2, "snapshot": 1, "evaluation": 3}


def test_work_after_the_resumed_snapshot_is_lost_and_time_after_the_last_sign_is_idle(
    tmp_path: Path,
) -> None:
    killed = [
        *START,
        at(116, "snapshot", step=10),
        at(117, "training"),
        at(127, "snapshot", step=20),  # never finished: the run goes on from 10
        at(128, "training"),
        at(140, "idle"),
        at(141, "start-up"),
        resumed(142, 10, 135),
        at(145, "training"),
    ]
    assert spent(tmp_path, *killed, at(165, "idle", status="success")) == {
        "start-up": 4 + 4, "compile": 2, "training": 10 + 20, "snapshot": 1, "lost work": 18, "idle": 5 + 1,
    }  # fmt: skip
    # killed once more, before it came as far: again from 10, and once more without a step
    again = [at(150, "idle"), at(150, "start-up"), resumed(151, 10, 149), at(152, "training"), at(153, "idle")]
    third = [at(153, "start-up"), resumed(154, 10, 149), at(155, "training"), at(156, "idle", status="aborted")]
    assert spent(tmp_path, *killed, *again, *third) == {
        "start-up": 4 + 4 + 2 + 2, "compile": 2, "training": 10 + 1, "snapshot": 1, "lost work": 18 + 4 + 1,
        "idle": 5 + 1 + 1,
    }  # fmt: skip


def test_a_snapshot_for_a_stop_loses_nothing_and_the_queue_is_counted_separately(tmp_path: Path) -> None:
    assert spent(
        tmp_path, at(40, "queued"), at(100, "start-up", was="queued"), at(106, "training"),
        at(116, "snapshot", step=10), at(117, "training"), at(117, "snapshot", step=10), at(118, "training"),
        at(118, "idle"), at(150, "start-up", was="queued"), resumed(151, 10, 116), at(153, "training"),
        at(160, "idle", status="success"),
    ) == {"queued": 60 + 32, "start-up": 6 + 3, "training": 10 + 7, "snapshot": 2}  # fmt: skip


@pytest.mark.parametrize(("sign", "lost"), [(110, 4), (None, 0)], ids=["its last step is known", "it isn't"])
def test_a_lost_node_wrote_no_end_so_time_after_its_last_sign_is_the_queue(
    tmp_path: Path, sign: float | None, lost: float
) -> None:
    found = spent(
        tmp_path, *START, at(200, "start-up", was="queued"), resumed(201, 0, sign), at(203, "training"),
        at(210, "idle", status="success"),
    )  # fmt: skip
    expected = {"start-up": 4 + 3, "compile": 2, "training": 7, "lost work": lost, "queued": 94 - lost}
    assert found == {bucket: seconds for bucket, seconds in expected.items() if seconds}


def test_a_clock_that_is_behind_subtracts_no_time_and_lines_without_records_are_ignored(tmp_path: Path) -> None:
    behind = [at(100, "training"), at(110, "evaluation"), at(108, "training"), at(120, "idle")]
    assert spent(tmp_path, *behind) == {"training": 20}
    hostile = (
        '{"ph": "B"', "[]", json.dumps(at(105, "training") | {"ts": "now"}), json.dumps(at(105, "lost work")),
        json.dumps(at(105, "idle") | {"pid": 7}), json.dumps(at(105, "idle") | {"ph": "E"}),
    )  # fmt: skip
    assert spent(tmp_path, at(100, "training"), *hostile, at(110, "idle")) == {"training": 10}
    assert ledger(read_trace(tmp_path / "result_1.txt").activities) is None  # it has no trace
