"""`bertbench report --follow` prints again as a run grows, and ends with the run."""

import os
import re
import sys
import time
from pathlib import Path

import pytest

from bertbench.cli.main import main
from bertbench.common.errors import TARGET_MISSED
from bertbench.runs.listing import each_growth, progress_line
from tests.compliance.logs import RESULTS
from tests.conftest import Captured, Printed
from tests.ranks import LIMIT_S
from tests.runs.written import write_run
from tests.whole_runs import finished, launched, wait_for


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


def test_a_run_that_is_lost_while_it_is_followed_is_yielded_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = write_run(tmp_path, steps=2, until_ms=600, status=None)
    growths = each_growth([tmp_path], every_s=0.01)
    assert next(growths) == [log]
    in_two_hours = time.time() + 7200
    monkeypatch.setattr(time, "time", lambda: in_two_hours)
    assert list(growths) == [[log]]


def test_a_running_run_has_a_line_with_its_last_whole_step(tmp_path: Path) -> None:
    log = write_run(tmp_path, steps=4, until_ms=600, status=None)
    with (log.with_suffix("") / "metrics.jsonl").open("a") as metrics:
        metrics.write('{"step": 5, "lo')
    assert progress_line(log) == "running: result_0: step 4, 400 samples, loss 6.0000, 1,000.0 ms a step"
    assert progress_line(write_run(tmp_path)) == ""


def written_at_the_next_look(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty log, which holds a whole run when it is looked at again."""
    log = folder / "result_0.txt"
    log.touch()

    def ends(_: float) -> None:
        write_run(folder)

    monkeypatch.setattr(time, "sleep", ends)
    return log


def test_on_a_terminal_tables_are_printed_as_the_run_grows(
    tmp_path: Path, printed: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    log = written_at_the_next_look(tmp_path, monkeypatch)
    shown = printed("report", tmp_path, "--follow")
    assert shown.startswith(f"{log}: the run hasn't written a line yet\n\n")
    assert "1 run" in shown


def test_a_pipe_gets_the_tables_once_and_standard_error_the_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    log = written_at_the_next_look(tmp_path, monkeypatch)
    assert main(["report", str(tmp_path), "--follow"]) == 0
    out, err = capsys.readouterr()
    assert err == f"{log}: the run hasn't written a line yet\n"
    assert main(["report", str(tmp_path)]) == 0
    assert capsys.readouterr().out == out


def test_a_run_that_trains_is_followed_into_a_pipe_until_it_ends(tiny_file: str, tmp_path: Path) -> None:
    log = tmp_path / "result_0.txt"
    with launched("train", tiny_file, "--result", log, "--set", "schedule.max_steps=200") as run:
        wait_for(log.exists)  # long before the run ends: its ranks have not met yet
        followed = finished("report", tmp_path, "--follow")
        assert run.wait(LIMIT_S) == TARGET_MISSED
    assert re.search(r"^running: result_0: |: the run hasn't written a line yet$", followed.stderr, re.MULTILINE)
    assert followed.stdout == finished("report", tmp_path).stdout


def test_runs_that_have_ended_are_printed_once_as_without_follow(printed: Printed) -> None:
    assert printed("report", RESULTS, "--follow") == printed("report", RESULTS)


@pytest.mark.parametrize(("more", "says"), [("--json", "leave --json"), ("--list", "leave --html, --details")])
def test_follow_refuses_what_is_printed_once(more: str, says: str, printed: Printed) -> None:
    complaint = printed("report", RESULTS, "--follow", more, code=2)
    assert says in complaint


def test_standard_input_cannot_be_followed(printed: Printed) -> None:
    assert "standard input" in printed("report", "-", "--follow", code=2)
