import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from selenium import webdriver

from bertbench.cli.main import main
from bertbench.common.published_results import published_results
from bertbench.runs import judged_runs
from bertbench.runs.groups import judged_groups
from bertbench.runs.report_page import published_table
from bertbench.runs.tables import report_text
from compliance import judge_log
from compliance.judge import Judgement
from compliance.rules.records import READABLE
from tests.browser import browser, show
from tests.compliance.logs import RESULTS
from tests.compliance.packages import line, run_log, write_package
from tests.conftest import Printed
from tests.runs.reports import RULESET, groups_of, page_of
from tests.runs.written import leave, row


@pytest.fixture
def window() -> Iterator[webdriver.Chrome]:
    with browser() as opened:
        yield opened


@pytest.mark.parametrize("width", [390, 1400])
def test_the_page_is_readable_in_a_browser(width: int, window: webdriver.Chrome, tmp_path: Path) -> None:
    demo, ask = tmp_path / "report.html", window.execute_script
    assert main(["report", str(RESULTS), "--html", str(demo)]) == 0
    show(window, demo, width)
    assert window.get_log("browser") == []
    assert ask("return document.documentElement.scrollWidth") <= width  # nothing sticks out to the side
    titles = ask("return [...document.querySelectorAll('figure img')].map(i => i.alt)")
    assert titles == [
        "Accuracy against samples",
        "Accuracy against time",
        "Loss",
        "Learning rate",
        "Time of a step",
    ]  # balanced ranks have no figure
    sizes = ask("return [...document.querySelectorAll('figure img')].map(i => [i.clientWidth, i.naturalWidth])")
    # letters have 13 pixels at the natural width, so they have at least 10
    assert all(shown >= 10 / 13 * natural > 0 for shown, natural in sizes)
    assert ask("return document.querySelectorAll('.legend li').length") == 10
    assert not re.search(r"url\(|@import|<script", demo.read_text())
    assert all(source.startswith("data:") for source in re.findall(r'src="([^"]*)"', demo.read_text()))
    links = ask("return [...document.querySelectorAll('a')].map(a => a.href)")
    assert links == [(RESULTS / f"result_{number}.txt").as_uri() for number in range(10)]
    assert "number of nodes 1; accelerators per node 0" in demo.read_text()


def test_a_finding_shows_the_line_of_the_log_as_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evil = '<img src=x onerror="document.title=1">'
    log = tmp_path / "result_0.txt"
    log.write_text("first\n" + f":::MLLOG {evil}\n" + run_log(evaluations=2))

    def judged(path: Path, ruleset: str | None) -> Judgement:
        return replace(judge_log(path, ruleset), breaches=(READABLE.breach(evil, "nothing", 2),))

    monkeypatch.setattr(judged_runs, "judge_log", judged)
    found = page_of(tmp_path)
    assert "<img src=x" not in found
    assert "line 2: :::MLLOG &lt;img src=x" in found


def test_other_peoples_packages_are_shown_with_the_published_results_of_their_size(tmp_path: Path) -> None:
    logs = write_package(tmp_path)
    (logs / "result_9.txt").write_text("cut off")
    text = page_of(tmp_path)
    assert "accelerators per node 8; accelerator model name toy accelerator" in text
    assert "toy (here)" in text
    assert "Published MLPerf results with 8 accelerators" in text
    assert "result_9.txt: not a log: found text without MLPerf lines" in text
    assert "9 of 10 runs reached the target" in text


def test_published_results_are_those_of_the_public_logs() -> None:
    rows = sorted((row for row in published_results() if row.submitter == "Samsung"), key=lambda row: row.minutes)
    assert [(row.minutes, row.accelerators, row.division) for row in rows] == [
        (0.3569, 1368, "open"), (0.372, 1024, "open"), (0.4176, 1024, "open"),
    ]  # fmt: skip
    assert len(published_results()) == 267


@pytest.mark.parametrize(
    ("accelerators", "minutes", "expected"),
    [(None, 1.0, "No system description"), (7, 1.0, "There are no published results with 7")],
)
def test_runs_that_cannot_be_compared_are_named(accelerators: int | None, minutes: float, expected: str) -> None:
    assert expected in published_table("mine", accelerators, minutes)
    assert "(here)" not in published_table("mine", accelerators, minutes)


def test_balance_and_speed_are_one_sentence_each_if_runs_measured_them(tmp_path: Path) -> None:
    leave(tmp_path, 0, 100)
    assert "Load balance" not in page_of(tmp_path)
    leave(tmp_path, 0, 100, metrics=row(1, load_efficiency=0.93) + row(2, load_efficiency=0.95))
    assert "Load balance" in page_of(tmp_path)
    *_, speed, balance, _ = report_text(groups_of(tmp_path)[0], detailed=False).splitlines()
    assert speed == "speed: 3,002 samples/s; time on the clock: 99.8% training, 0.2% evaluation, 0.0% start-up"
    assert balance == "balance: load efficiency 94.0% (mean load / largest load)"


def test_the_use_of_runs_is_their_mean_and_their_largest_memory(tmp_path: Path) -> None:
    first = {"cores_busy": 0.5, "memory_gb": 1.0, "peak_memory_gb": 1.25}
    second = {"cores_busy": 0.75, "memory_gb": 1.5, "peak_memory_gb": 1.75}
    leave(tmp_path, 0, 100, metrics=row(1, **first) + row(2, **second))  # means 0.625 and 1.25
    leave(tmp_path, 1, 100, metrics=row(1, **first) + row(2, **first))
    lines = report_text(groups_of(tmp_path)[0], detailed=False).splitlines()
    assert "use of rank 0: 0.56 cores busy, 1.12 GB of memory, at most 1.75 GB" in lines


def test_folders_that_share_a_platform_are_separate_systems(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_package(tmp_path / name, evaluations=2)
    names = [group.system for group in judged_groups([tmp_path], RULESET)]
    assert names == [f"toy, {tmp_path / name / 'results' / 'toy' / 'bert'}" for name in ("a", "b")]


@pytest.mark.parametrize("kind", ["FIFO", "device", "large", "deep"])
def test_files_next_to_a_log_are_opened_safely(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "result_0"
    folder.mkdir()
    folder.with_suffix(".txt").write_text(run_log())
    for name in ("metrics.jsonl", "system.json", "config.json", "run.json", "trace.json"):
        path = folder / name
        if kind == "FIFO":
            os.mkfifo(path)
        elif kind == "large":
            with path.open("wb") as file:
                file.truncate(8 << 30)
        elif kind == "deep":
            path.write_text("[" * 500_000)
        else:
            path.symlink_to("/dev/zero")
    assert main(["report", str(tmp_path), "--html", str(tmp_path / "page.html")]) == 0


EVIL = "\x1b[2J\x07 \u202egnp half \ud800 of a pair \x00 \x9b31m"


def test_a_value_in_a_log_can_neither_steer_a_terminal_nor_crash_the_report(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"\xff\x1b[1m")
    folder.mkdir()
    for number, key in enumerate(("submission_platform", "submission_org", "not_a_result", "status")):
        log = run_log(evaluations=2).replace('"status": "success"', f'"status": {json.dumps(EVIL)}')
        (folder / f"result_{number}.txt").write_text(log if key == "status" else line(key, EVIL) + "\n" + log)
    out = tmp_path / "page.html"
    command = [sys.executable, "-m", "bertbench", "report", str(folder), "--html", str(out)]
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    for output in (done.stdout, out.read_bytes()):
        text = output.decode()  # no half of a pair is left
        assert all(one.isprintable() or one == "\n" for one in text)


def test_a_page_that_cannot_be_written_is_one_clear_error(tmp_path: Path, printed: Printed) -> None:
    complaint = printed("report", RESULTS, "--html", tmp_path / "no" / "page.html", code=2)
    assert "cannot be written (No such file or directory); name another file with --html" in complaint
