"""Start-up as the report shows it, and what it makes of runs that are no results."""

from pathlib import Path
from typing import Any

import pytest

from bertbench.report.runs import text
from tests.compliance.packages import line, run_log
from tests.report.reports import page_of, summaries

SECONDS: dict[str, Any] = {"launcher": 2.5, "imports": 3.25, "plan": 0.125, "shards": 0.5, "first batch": 0.375,
                           "first step": 0.25}  # fmt: skip


def with_startup(path: Path, seconds: Any, slowest: Any) -> Path:
    path.write_text(run_log(seconds=100) + line("startup", None, 102_000, seconds=seconds, slowest=slowest) + "\n")
    return path


def test_start_up_is_told_piece_by_piece_with_the_slowest_rank(tmp_path: Path) -> None:
    log = with_startup(tmp_path / "result_0.txt", SECONDS, SECONDS | {"first batch": 1.5})
    (system,) = summaries(log)
    (row,) = system["runs"]
    assert row["startup"]["timed_s"] == {"plan": 0.125, "shards": 0.5, "first batch": 0.375, "first step": 0.25}
    assert row["startup"]["untimed_s"] == {"launcher": 2.5, "imports": 3.25}
    assert row["startup"]["slowest_s"]["first batch"] == 1.5
    # until the first step could begin: the step itself is training
    assert (row["startup_s"], round(row["steps_s"], 3)) == (1.0, 97.317)  # 17 evaluations of 99 ms
    assert "start-up: seconds" not in text(system, detailed=False)
    lines = text(system, detailed=True).splitlines()
    (slowest,) = (row for row in lines if row.strip().startswith("result_0, slowest rank"))
    assert slowest.split()[3:5] == ["2.50", "3.25"]
    assert slowest.split()[-4:] == ["0.12", "0.50", "1.50", "0.25"]
    assert "start-up: seconds of each piece from launch" in page_of(log)


@pytest.mark.parametrize(
    ("seconds", "slowest"),
    [(None, None), ("much", 7), ({"plan": "\x1b[2J"}, []), ({"\x1b[2J": 1.0}, {}), ({"plan": float("nan")}, {})],
)
def test_other_peoples_events_of_that_name_are_left_out(tmp_path: Path, seconds: Any, slowest: Any) -> None:
    log = with_startup(tmp_path / "result_0.txt", seconds, slowest)
    (system,) = summaries(log)
    assert system["runs"][0]["startup"] is None
    assert "start-up: seconds" not in text(system, detailed=True)


def test_runs_that_are_no_results_are_shown_and_not_counted(tmp_path: Path) -> None:
    (tmp_path / "result_0.txt").write_text(run_log(seconds=50))
    (tmp_path / "result_1.txt").write_text(line("not_a_result", "profile") + "\n" + run_log(seconds=10))
    (system,) = summaries(tmp_path)
    assert [(row["counted"], row["not_a_result"]) for row in system["runs"]] == [(True, None), (False, "profile")]
    assert (system["reached"], system["mean_time_to_train_s"]) == (1, 50.0)
    shown = text(system, detailed=False)
    assert "1 of 1 runs reached the target" in shown
    assert shown.splitlines()[3].endswith("no result")
