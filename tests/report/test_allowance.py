"""Trackers get a small share of a processor during a run, and the remaining steps after it."""

import time
from pathlib import Path
from typing import Any

import pytest

from bertbench.report.side_process import SHARE, SideWork
from tests.docs.listing import REPOSITORY
from tests.report.test_trackers import Kept
from tests.report.written import write_run


class Slow(Kept):
    """A tracker that computes for 5 ms per step."""

    def record(self, points: Any) -> None:
        end = time.process_time() + 5e-3 * len(points)
        while time.process_time() < end:
            pass
        super().record(points)


def test_a_tracker_gets_a_small_share_of_a_processor_and_catches_up_after_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, now = Slow(), 1000.0
    monkeypatch.setattr("bertbench.report.side_process.open_tracker", lambda *_: slow)
    monkeypatch.setattr(time, "monotonic", lambda: now)
    log = write_run(tmp_path / "toy" / "bert", steps=40, status=None)
    (log.with_suffix("") / "metrics.jsonl").rename(tmp_path / "later.jsonl")
    side = SideWork(log, tmp_path, ["tensorboard"])
    (tmp_path / "later.jsonl").rename(log.with_suffix("") / "metrics.jsonl")
    for seconds, passed_on in ((5, 10), (15, 10), (25, 20)):  # ten steps take 50 ms, which is the share of 25 s
        now += seconds
        side.look()
        assert len(slow.points) == passed_on
    side.close()
    assert slow.ended is not None
    assert [point.step for point in slow.points] == [*range(1, 41)]


def test_the_page_says_the_share_that_trackers_get() -> None:
    page = (REPOSITORY / "docs" / "watching.md").read_text()
    assert f"trackers may use {100 * SHARE:g} % of a processor" in page
