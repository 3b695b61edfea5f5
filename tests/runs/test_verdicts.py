"""The report repeats the judge's verdict on runs, never a log's own claim."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.compliance.logs import RESULTS
from tests.compliance.packages import run_log
from tests.conftest import Answer, Printed

LAST = re.compile(r'("key": "eval_accuracy", "value": )[0-9.]+(?!.*"key": "eval_accuracy")', re.DOTALL)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """The ten recorded runs, whose fastest is result_2."""
    return Path(shutil.copytree(RESULTS, tmp_path / "cpu_demo" / "bert"))


def rewrite(log: Path, pattern: re.Pattern[str] | str, by: str) -> None:
    text, changes = re.subn(pattern, by, log.read_text())
    assert changes
    log.write_text(text)


def test_a_log_relabelled_closed_has_not_reached_the_target(runs: Path, answer: Answer, printed: Printed) -> None:
    log = runs / "result_2.txt"
    rewrite(log, '"value": "open"', '"value": "closed"')
    (group,) = answer("report", log)
    assert (group["reached"], group["reached_not_passed"], group["passed"]) == (0, 0, 0)
    assert group["mean_time_to_train_s"] is None
    assert (group["runs"][0]["verdict"], group["runs"][0]["status"]) == ("fail", "missed the target")
    (listed,) = answer("report", "--list", log)
    assert listed["status"] == "missed the target"
    shown = printed("report", log)
    assert "0 of 1 runs reached the target" in shown
    assert re.search(r"result_2\.txt:\d+: error target: found best accuracy 0\.\d+", shown)
    assert "success" not in shown


@pytest.mark.parametrize(("before", "after", "reason"), [
    ('"key": "init_stop"', '"key": "stop"', "result_2.txt: error official: found no init_stop"),
    ('"value": "bert"', '"value": "resnet"', 'result_2.txt:3: error benchmark: found submission_benchmark "resnet"'),
], ids=["fails", "can't be judged"])  # fmt: skip
def test_a_run_that_reached_the_target_in_a_log_that_does_not_pass_is_not_said_to_have_missed_it(
    runs: Path, answer: Answer, printed: Printed, before: str, after: str, reason: str
) -> None:
    log = runs / "result_2.txt"
    rewrite(log, before, after)
    (group,) = answer("report", log)
    assert (group["reached"], group["reached_not_passed"], group["mean_time_to_train_s"]) == (0, 1, None)
    shown = printed("report", log)
    assert "1 of 1 runs reached the target, but 1 in a log that the judge doesn't pass, so 0 count\n" in shown
    assert reason in shown
    others = answer("report", runs)[0]
    assert (others["reached"], others["reached_not_passed"]) == (9, 1)
    side = answer("compare", log, runs)["a"]
    assert (side["reached"], side["reached_not_passed"]) == (0, 1)
    compared = printed("compare", log, runs)
    assert (
        f"A: {log} (1 of 1 runs reached the target, but 1 in a log that the judge doesn't pass, so 0 count)" in compared
    )
    assert f"A: {log} doesn't count, because the judge doesn't pass it: {reason}" in compared
    assert "no run of A reached its target in a log that the judge passes" in compared


def test_an_accuracy_just_below_the_target_is_not_rounded_up_and_not_dropped_as_the_fastest(
    runs: Path, answer: Answer, printed: Printed
) -> None:
    rewrite(runs / "result_2.txt", LAST, r"\g<1>0.39995")
    (group,) = answer("report", runs)
    times = sorted(run["time_to_train_s"] for run in group["runs"] if run["log"] != str(runs / "result_2.txt"))
    assert group["reached"] == 9
    assert group["mean_time_to_train_s"] == pytest.approx(sum(times) / 9)
    assert group["score_s"] == pytest.approx(sum(times[1:]) / 8)  # the one that failed counts as the slowest
    (row,) = (line.split() for line in printed("report", runs).splitlines() if line.startswith("result_2 "))
    assert "0.39995" in row
    assert "pass" not in row and "success" not in row
    (row,) = (line.split() for line in printed("report", "--list", runs).splitlines() if "result_2.txt" in line)
    assert "0.39995" in row and "success" not in row
    (side,) = {json.dumps(answer("compare", runs, runs)[letter], sort_keys=True) for letter in "ab"}
    assert json.loads(side)["reached"] == 9


def test_a_run_below_its_own_target_has_not_reached_it_even_if_the_judge_passes_it(
    tmp_path: Path, answer: Answer
) -> None:
    log = tmp_path / "result_0.txt"
    log.write_text(run_log("open", evaluations=2))
    log.with_suffix("").mkdir()
    (log.with_suffix("") / "config.json").write_text(json.dumps({"evaluation": {"target": 0.73}}))
    (group,) = answer("report", log)
    assert (group["runs"][0]["verdict"], group["reached"]) == ("pass", 0)
    assert answer("report", "--list", log)[0]["status"] == "missed the target"


def test_a_file_that_is_not_a_log_is_reported_as_such(runs: Path, answer: Answer, printed: Printed) -> None:
    log, cause = runs / "result_4.txt", "binary data"
    log.write_bytes(b"\0\1\2" * 9)
    (group,) = answer("report", runs)
    row = group["runs"][4]
    assert (row["is_log"], row["verdict"], group["reached"], group["passed"]) == (False, "cannot-judge", 9, 9)
    shown = printed("report", runs)
    assert f"{log}: not a log: found {cause}" in shown
    assert re.search(r"^result_4 +no log ", shown, re.MULTILINE)
    for command in (("report",), ("compare", runs)):
        complaint = printed(*command, log, code=2)
        assert f"{log}: found {cause}" in complaint
    for other in (("report", "--list"), ("track", "--to", "tensorboard")):
        assert f"{log}: found {cause}" in printed(*other, log, code=2)


def test_a_run_whose_log_is_still_empty_is_not_judged(runs: Path, answer: Answer, printed: Printed) -> None:
    log = runs / "result_4.txt"
    log.write_bytes(b"")
    (group,) = answer("report", runs)
    row = group["runs"][4]
    assert (row["is_log"], row["status"], row["verdict"], group["reached"]) == (True, "running", None, 9)
    assert answer("report", "--list", log)[0]["status"] == "running"
    for command in (("report",), ("compare", runs)):
        assert f"{log}: found an empty file" in printed(*command, log, code=2)


def test_an_unfinished_log_is_reported_as_such_instead_of_breaking_every_rule(
    runs: Path, answer: Answer, printed: Printed
) -> None:
    log = runs / "result_6.txt"
    log.write_text(log.read_text()[:9_000])  # within a line
    for file in (log, log.with_suffix("") / "metrics.jsonl"):
        os.utime(file, (time.time() - 7200,) * 2)
    (group,) = answer("report", runs)
    row = group["runs"][6]
    assert (row["verdict"], row["findings"], row["questions"], group["reached"]) == (None, [], [], 9)
    shown = printed("report", runs)
    assert re.search(r"^result_6 +unfinished ", shown, re.MULTILINE)
    assert "9 of 9 logs pass under ruleset 5.0.0, 1 not judged (unfinished, or not a result); no findings" in shown


def test_a_log_on_standard_input_is_reported_as_from_a_file(runs: Path) -> None:
    command = [sys.executable, "-m", "bertbench", "report", "-"]
    with (runs / "result_0.txt").open() as log:
        done = subprocess.run(command, stdin=log, capture_output=True, text=True, check=True)
    assert "1 of 1 logs pass under ruleset 5.0.0; no findings" in done.stdout


def test_a_question_is_counted_apart_from_findings_in_text_json_and_page(
    runs: Path, answer: Answer, printed: Printed, tmp_path: Path
) -> None:
    shutil.copy(runs / "result_3.txt", runs / "result_4.txt")
    page = tmp_path / "page.html"
    shown = printed("report", runs, "--html", page).splitlines()
    (group,) = answer("report", runs)
    assert all(run["findings"] == [] for run in group["runs"])
    asked = {Path(run["log"]).name: [each["figure"] for each in run["questions"]] for run in group["runs"]}
    (log,) = (name for name, figures in asked.items() if figures)
    (figure,) = asked[log]
    other = {"result_4.txt": "result_3.txt", "result_3.txt": "result_4.txt"}[log]
    assert figure.endswith(f" equal those of {other}")
    assert any(line.startswith(f"{log}: question copied-run: {figure}; usual: no two runs") for line in shown)
    counts = "10 of 10 logs pass under ruleset 5.0.0; no findings, 1 question: `bertbench judge` lists them"
    assert counts in shown
    text = page.read_text()
    assert "Questions for the submitter" in text and figure in text
    good = counts.replace("`bertbench judge`", "<code>bertbench judge</code>")
    assert f'<p class="good">{good}</p>' in text  # a question doesn't change the verdict


def test_report_and_compare_give_the_same_mean_and_score(runs: Path, answer: Answer, printed: Printed) -> None:
    (group,) = answer("report", runs)
    compared: dict[str, Any] = answer("compare", runs, runs)
    time, samples = (compared["measures"][at]["a"]["mean"] for at in (0, 1))
    assert (group["mean_time_to_train_s"], group["mean_samples_to_converge"]) == (time, samples)
    assert group["score_s"] == compared["a"]["score_s"]
    kept = sorted(run["time_to_train_s"] for run in group["runs"])[1:-1]
    assert group["score_s"] == pytest.approx(sum(kept) / 8)
    said = f"mean of all 10: {time:.1f} s, {samples:,.0f} samples; MLPerf's score: {group['score_s']:.1f} s"
    assert said in printed("report", runs)


def test_fewer_runs_than_a_result_have_a_mean_and_no_score(tmp_path: Path, answer: Answer, printed: Printed) -> None:
    for number, seconds in enumerate((100, 110, 150)):
        (tmp_path / f"result_{number}.txt").write_text(run_log(seconds=seconds, seed=number))
    (group,) = answer("report", tmp_path)
    assert (group["mean_time_to_train_s"], group["score_s"]) == (120, None)
    assert "mean of all 3: 120.0 s" in printed("report", tmp_path)
