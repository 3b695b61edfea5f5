"""A study of the tiny system, with real runs: killed, gone on with, and reported."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bertbench.cli import main
from bertbench.common.errors import RunError
from bertbench.config import load_system, system_names
from bertbench.results.files import ResultFiles
from compliance.log import read_events
from compliance.run import RunFacts
from lab.paths import STUDIES
from lab.study.clip import read_definition
from lab.study.trial import Trial, run_trial

LIMIT_S = 120
TRIALS = 2 * (2 + 2)  # arms times tuning and seeds


@pytest.fixture
def study(tmp_path: Path, tiny_file: str) -> list[str]:
    """The words of a study of two clip modes."""
    content = {
        "question": "Does clipping matter to the tiny system?",
        "system": tiny_file,
        "arms": {
            mode: {"clip.mode": mode, "clip.max_norm": 0.01, "evaluation.target": 0.02} for mode in ("after", "bucket")
        },
        "space": {"optimizer.learning_rate": {"low": 0.01, "high": 0.1}},
        "tuning_trials": 2,
        "comparisons": [{"arm": "bucket", "against": "after"}],
    }
    path = tmp_path / "definition.json"
    path.write_text(json.dumps(content))
    return ["lab", "clip", "--definition", str(path), "--out", str(tmp_path / "out"), "--seeds", "2"]


@pytest.mark.slow
def test_a_killed_study_goes_on_and_reports_every_arm(
    study: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    began = subprocess.Popen([sys.executable, "-m", "bertbench", *study], stderr=subprocess.DEVNULL)
    until = time.monotonic() + LIMIT_S
    journal = out / "trials.jsonl"
    while not (journal.exists() and journal.read_text()) and time.monotonic() < until:
        time.sleep(0.05)
    began.kill()
    began.wait()
    ended = journal.read_text().splitlines()
    assert 1 <= len(ended) < TRIALS

    assert main([*study, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["arm"], row["seed"]) for row in rows] == [("after", 1), ("bucket", 1), ("after", 2), ("bucket", 2)]
    for row in rows:
        assert row["reached"] == (row["samples_to_target"] is not None)
        assert row["clipped_steps"] == 1.0
    lines = journal.read_text().splitlines()
    assert len(lines) == TRIALS
    assert lines[: len(ended)] == ended, "what ended is not run again"
    page = (out / "study.html").read_text()
    assert page.count("<svg") == 3
    assert "Does clipping matter" in page
    rates = {"after": set(), "bucket": set()}
    for trial in map(json.loads, lines):
        if trial["kind"] == "comparison":
            rates[trial["arm"]].add(trial["optimizer.learning_rate"])
    assert [len(own) for own in rates.values()] == [1, 1], "all seeds of an arm have its tuned value"
    logs = list((out / "runs" / "after").glob("result_*.txt"))
    assert len(logs) == 4
    for log in logs:
        assert RunFacts(read_events(log)).status in ("success", "aborted")

    assert main(study) == 0  # nothing is left to run
    assert capsys.readouterr().out.split()[0] == "arm"


def test_a_trial_that_is_stopped_says_so_in_its_log(tiny_file: str, tmp_path: Path) -> None:
    seen: list[int] = []

    def stop_at_second(samples: int, accuracy: float) -> bool:
        seen.append(samples)
        return len(seen) == 2

    files = ResultFiles(tmp_path / "result_0.txt")
    system = load_system(tiny_file, ["schedule.max_steps=5000"])
    outcome = run_trial(Trial("one", system, 1, files), stop_at_second, 1)
    assert seen == [36, 60]  # steps of 12 samples; due at 25 and 50
    assert outcome.samples is None
    log = files.log.read_text()
    assert "others were better" in log
    assert RunFacts(read_events(files.log)).status == "aborted"


def test_a_rate_too_high_is_a_miss_and_data_that_is_gone_a_failure(tiny_file: str, tmp_path: Path) -> None:
    files = ResultFiles(tmp_path / "result_0.txt")
    wild = load_system(tiny_file, ["optimizer.learning_rate=1e30"])
    assert not run_trial(Trial("wild", wild, 1, files), lambda *_: False, 1).samples
    gone = load_system(tiny_file, ["data.path=nowhere"])
    with pytest.raises(RunError, match="gone: the run failed, seed 7"):
        run_trial(Trial("gone", gone, 7, files), lambda *_: False, 1)


def test_the_study_that_comes_with_the_project_describes_systems() -> None:
    definition = read_definition(STUDIES / "clip.json")
    assert definition.system in system_names()
    ranges = {key: bounds.high for key, bounds in definition.space.items()}
    systems = {arm: definition.trial_system(arm, ranges) for arm in definition.arms}
    # on a single rank before and after would be the same
    assert all(system.world_size > 1 for system in systems.values())
    limits = {system.max_steps * system.global_batch_size for system in systems.values()}
    assert max(limits) <= 1.01 * min(limits)  # the same samples for every arm


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"arms": {"only": {}}}, "arms: Dictionary should have at least 2 items"),
        ({"space": {"a.b": {"low": 2, "high": 1}}}, "low 2 is not below high 1"),
        ({"comparisons": [{"arm": "x", "against": "after"}]}, "found no arm x; choose of after, bucket"),
    ],
)
def test_a_mistake_in_a_definition_is_one_message(
    study: list[str], change: dict[str, object], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(study[3])
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    assert main(study) == 2
    assert message in capsys.readouterr().err


def test_a_folder_holds_one_study(study: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "definition.json").write_text("{}")
    assert main(study) == 2
    assert "holds another study" in capsys.readouterr().err
