"""Files that bertbench wrote at commit 108350e still load: a system file, a dataset, a snapshot, weights and a result.

made_by_108350e/ holds them as that commit wrote them: `data prepare --system mine.json`, then `launch mine.json
--seed 7`, two ranks, 20 steps, whose snapshot of step 20 was left out to save space.
"""

import json
import shutil
from pathlib import Path

import pytest

from bertbench.cli.main import main
from bertbench.config import load_system

WRITTEN = Path(__file__).with_name("made_by_108350e")
RESULT = Path("runs", "mine", "bert", "result_0.txt")


@pytest.fixture
def upgraded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a copy of the older commit's files, in which commands run."""
    folder = tmp_path / "upgraded"
    shutil.copytree(WRITTEN, folder)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("DATADIR", str(folder))
    monkeypatch.setenv("LOGDIR", str(folder / "runs"))
    return folder


def metrics(folder: Path) -> list[dict[str, float]]:
    lines = (folder / RESULT.with_suffix("") / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def differences(older: dict[str, object], newer: dict[str, object], prefix: str = "") -> list[str]:
    """Return the settings that the older configuration states and the newer one doesn't repeat."""
    changed = []
    for key, value in older.items():
        now = newer.get(key)
        if isinstance(value, dict) and isinstance(now, dict):
            changed += differences(value, now, f"{prefix}{key}.")
        elif now != value:
            changed.append(prefix + key)
    return changed


def test_a_system_file_means_what_it_meant(upgraded: Path) -> None:
    then = json.loads((upgraded / RESULT.with_suffix("") / "config.json").read_text())
    now = load_system("mine.json").model_dump(mode="json", by_alias=True)
    assert differences(then, now) == []


def test_a_dataset_is_sound(upgraded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "verify", str(upgraded / "data")]) == 0
    assert "321 train samples, 12 eval samples, all valid" in capsys.readouterr().out


def test_a_run_resumes_from_its_snapshot_to_the_losses_that_it_had(upgraded: Path) -> None:
    then = metrics(upgraded)
    snapshot = upgraded / RESULT.with_suffix("") / "snapshots" / "step_10"
    assert main(["launch", "mine.json", "--resume", str(snapshot)]) == 3  # it misses its target, as it did
    now = metrics(upgraded)
    assert [row["step"] for row in now] == [row["step"] for row in then]
    # another processor's products round otherwise: ten steps of fp32 keep five digits
    assert [row["loss"] for row in now] == pytest.approx([row["loss"] for row in then], rel=1e-5)


def test_a_result_is_reported(upgraded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(upgraded / RESULT), "--json"]) == 0
    (system,) = json.loads(capsys.readouterr().out)
    (run,) = system["runs"]
    assert run["seed"] == 7
    assert run["best_accuracy"] == pytest.approx(0.0714285714)
