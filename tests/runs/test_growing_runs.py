"""`bertbench report --follow` prints again as a run grows, and ends with the run."""

import os
import time
from pathlib import Path

import pytest

from bertbench.runs.listing import each_growth, progress_line
from tests.compliance.logs import RESULTS
from tests.conftest import Printed
from tests.runs.written import write_run


def test_a_run_is_yielded_when_it_has_grown_until_it_ends(tmp_path: Path) -> None:
    log = write_run(tmp_path, steps=2, until_ms=600, status=None)
    growths = each_growth([tmp_path], every_s=0.01)
    assert next(growths) == [log]
    write_run(tmp_path, steps=4, until_ms=600, status=None)
    assert next(growths) == [log]
    write_run(tmp_path)
    assert list(growths) == [[log]]


def test_a_run_that_was_killed_and_writes_no_more_is_not_waited_for(tmp_path: Path) -> None:
    log = write_run(tmp_path, steps=2, until_ms=600, status=None)
    two_hours_ago = time.time() - 7200
    for file in (log, log.with_suffix("") / "metrics.jsonl"):
        os.utime(file, (two_hours_ago, two_hours_ago))
    assert list(each_growth([tmp_path], every_s=0.01)) == [[log]]


def test_a_running_run_has_a_line_with_its_last_whole_step(tmp_path: Path) -> None:
    log = write_run(tmp_path, steps=4, until_ms=600, status=None)
    with (log.with_suffix("") / "metrics.jsonl").open("a") as metrics:
        metrics.write('{"step": 5, "lo')
    assert progress_line(log) == "running: result_0: step 4, 400 samples, loss 6.0000, 1,000.0 ms a step"
    assert progress_line(write_run(tmp_path)) == ""


def test_a_run_that_has_not_written_yet_is_said_to_be_so(
    tmp_path: Path, printed: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "result_0.txt"
    log.touch()

    def ends(_: float) -> None:
        write_run(tmp_path)

    monkeypatch.setattr(time, "sleep", ends)
    shown = printed("report", tmp_path, "--follow")
    assert shown.startswith(f"{log}: the run hasn't written a line yet\n\n")
    assert "1 run" in shown


def test_runs_that_have_ended_are_printed_once_as_without_follow(printed: Printed) -> None:
    assert printed("report", RESULTS, "--follow") == printed("report", RESULTS)


@pytest.mark.parametrize(("more", "says"), [("--json", "leave --json"), ("--list", "leave --html, --details")])
def test_follow_refuses_what_is_printed_once(more: str, says: str, printed: Printed) -> None:
    complaint = printed("report", RESULTS, "--follow", more, code=2)
    assert says in complaint


def test_standard_input_cannot_be_followed(printed: Printed) -> None:
    assert "standard input" in printed("report", "-", "--follow", code=2)
