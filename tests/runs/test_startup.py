"""Start-up as the report shows it, and its treatment of runs that aren't results."""

from pathlib import Path
from typing import Any

import pytest

from bertbench.runs.tables import report_text
from tests.compliance.packages import line, run_log
from tests.runs.reports import groups_of, page_of

SECONDS: dict[str, Any] = {"launcher": 2.5, "imports": 3.25, "plan": 0.125, "shards": 0.5, "first batch": 0.375,
                           "first step": 0.25}  # fmt: skip


STARTUP = "start-up: seconds of each part, from launch to the end of the first step"


def with_startup(path: Path, seconds: Any, slowest: Any) -> Path:
    path.write_text(run_log(seconds=100) + line("startup", None, 102_000, seconds=seconds, slowest=slowest) + "\n")
    return path


def test_start_up_is_reported_piece_by_piece_with_the_slowest_rank(tmp_path: Path) -> None:
    log = with_startup(tmp_path / "result_0.txt", SECONDS, SECONDS | {"first batch": 1.5})
    (system,) = groups_of(log)
    row = system.runs[0].run
    assert row.startup["timed_s"] == {"plan": 0.125, "shards": 0.5, "first batch": 0.375, "first step": 0.25}
    assert row.startup["untimed_s"] == {"launcher": 2.5, "imports": 3.25}
    assert row.startup["slowest_s"]["first batch"] == 1.5
    # until the first step could begin: the step itself is training
    assert (row.startup_s, round(row.steps_s, 3)) == (1.0, 97.317)  # 17 evaluations of 99 ms
    assert "start-up: seconds" not in report_text(system, detailed=False)
    lines = report_text(system, detailed=True).splitlines()
    table = [row.split() for row in lines[lines.index(STARTUP) + 2 :][: len(SECONDS)]]
    assert table[0] == ["launcher", "2.50", "2.50"]
    assert table[-2:] == [["first", "batch", "0.38", "1.50"], ["first", "step", "0.25", "0.25"]]
    assert "start-up: seconds of each part, from launch" in page_of(log)


def test_start_up_of_several_runs_has_one_row_per_piece_with_mean_and_maximum(tmp_path: Path) -> None:
    for number, imports in enumerate((1.0, 2.0, 6.0)):
        with_startup(
            tmp_path / f"result_{number}.txt", SECONDS | {"imports": imports}, SECONDS | {"imports": imports + 1}
        )
    (system,) = groups_of(tmp_path)
    lines = report_text(system, detailed=True).splitlines()
    header, first, second, *_ = lines[lines.index(f"{STARTUP}, in 3 runs") + 1 :]
    ranks = "rank 0: mean", "rank 0: max", "slowest rank: mean", "slowest rank: max"
    assert " ".join(header.split()) == " ".join(["part", *ranks])
    assert first.split()[0] == "launcher"
    assert second.split() == ["imports", "3.00", "6.00", "4.00", "7.00"]


@pytest.mark.parametrize(
    ("seconds", "slowest"),
    [(None, None), ("much", 7), ({"plan": "\x1b[2J"}, []), ({"\x1b[2J": 1.0}, {}), ({"plan": float("nan")}, {})],
)
def test_events_of_that_name_from_other_programs_are_ignored(tmp_path: Path, seconds: Any, slowest: Any) -> None:
    log = with_startup(tmp_path / "result_0.txt", seconds, slowest)
    (system,) = groups_of(log)
    assert system.runs[0].run.startup is None
    assert "start-up: seconds" not in report_text(system, detailed=True)


def test_runs_that_are_not_results_are_shown_but_not_counted(tmp_path: Path) -> None:
    (tmp_path / "result_0.txt").write_text(run_log(seconds=50))
    (tmp_path / "result_1.txt").write_text(line("not_a_result", "profile") + "\n" + run_log(seconds=10))
    (system,) = groups_of(tmp_path)
    assert [(one.run.log in system.counted, one.run.not_a_result) for one in system.runs] == [
        (True, None),
        (False, "profile"),
    ]
    assert (len(system.reaching), system.mean_time_to_train_s) == (1, 50.0)
    shown = report_text(system, detailed=False)
    assert "1 of 1 runs reached the target" in shown
    assert shown.splitlines()[3].split()[:3] == ["result_1", "no", "result"]
