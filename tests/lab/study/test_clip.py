"""A study of a system, with real runs: killed, resumed, and reported."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bertbench.common.errors import RunError
from compliance.log import read_events
from compliance.run import RunFacts
from lab.study.system_run import overrides, run_system
from tests.conftest import Answer

LIMIT_S = 120
TRIALS = 2 * (2 + 2)  # arms times tuning and seeds
ONE_RANK = {"launch.ranks_per_node": 1}


@pytest.mark.slow
def test_a_killed_study_resumes_and_reports_every_arm(tiny_file: str, tmp_path: Path, answer: Answer) -> None:
    path, out = tmp_path / "definition.json", tmp_path / "out"
    modes = ("after", "bucket")
    content = {
        "question": "Does clipping matter to the tiny system?",
        "setting": tiny_file,
        "arms": {mode: {"clip.mode": mode, "clip.max_norm": 0.01, "evaluation.target": 0.02} for mode in modes},
        "space": {"optimizer.learning_rate": {"low": 0.01, "high": 0.1}},
        "tuning": {"trials": 2, "patience": 1.5},
        "comparisons": [{"arm": "bucket", "against": "after"}],
    }
    path.write_text(json.dumps(content))
    study = ["lab", "clip", "--definition", str(path), "--out", str(out), "--seeds", "2"]
    began = subprocess.Popen([sys.executable, "-m", "bertbench", *study], stderr=subprocess.DEVNULL)
    until = time.monotonic() + LIMIT_S
    journal = out / "trials.jsonl"
    while not (journal.exists() and journal.read_text()) and time.monotonic() < until:
        time.sleep(0.05)
    began.kill()
    began.wait()
    ended = journal.read_text().splitlines()
    assert 1 <= len(ended) < TRIALS

    rows = answer(*study)
    assert [(row["arm"], row["seed"]) for row in rows] == [("after", 1), ("bucket", 1), ("after", 2), ("bucket", 2)]
    for row in rows:
        assert row["reached"] == (row["samples_to_target"] is not None)
        assert row["clipped_steps"] == 1.0
    lines = journal.read_text().splitlines()
    assert len(lines) == TRIALS
    assert lines[: len(ended)] == ended, "what ended is not run again"
    assert "Does clipping matter" in (out / "study.html").read_text()
    logs = list((out / "runs" / "after").glob("result_*.txt"))
    assert len(logs) == 4
    for log in logs:
        assert RunFacts(read_events(log)).status in ("success", "aborted")


def test_a_trial_ends_at_its_limit_and_a_rate_too_high_is_a_miss(tiny_file: str, tmp_path: Path) -> None:
    log = tmp_path / "runs" / "result_0.txt"
    limited = run_system(tiny_file, overrides({"schedule.max_steps": 5000, **ONE_RANK}, most_samples=60.0), 1, log)
    assert limited.samples is None
    facts = RunFacts(read_events(log))
    assert (facts.status, facts.samples) == ("aborted", 60)
    too_high = overrides({"optimizer.learning_rate": 1e30, **ONE_RANK})
    assert run_system(tiny_file, too_high, 1, log).samples is None


def test_a_trial_that_takes_no_step_is_a_failure(tiny_file: str, tmp_path: Path) -> None:
    nowhere = overrides({"data.path": "nowhere", **ONE_RANK})
    with pytest.raises(RunError, match=r"the run failed, seed 7, with code 2: .*nowhere"):
        run_system(tiny_file, nowhere, 7, tmp_path / "result_0.txt")
