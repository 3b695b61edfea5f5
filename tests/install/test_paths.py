"""Where a clone keeps data and runs, and which folders DATADIR and LOGDIR replace."""

from pathlib import Path

import pytest

from bertbench.common.paths import REPOSITORY, data_path, runs_folder
from bertbench.config import load_system


def test_a_checkout_keeps_data_and_runs_in_the_repository(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert REPOSITORY is not None
    monkeypatch.delenv("DATADIR", raising=False)
    monkeypatch.delenv("LOGDIR", raising=False)
    monkeypatch.chdir(tmp_path)
    demo = load_system("cpu_demo").data.path
    assert data_path(demo) == REPOSITORY / "data" / "cpu_demo"
    assert runs_folder() == REPOSITORY / "runs"
    assert data_path(str(tmp_path)) == tmp_path
    monkeypatch.setenv("DATADIR", "/elsewhere")
    monkeypatch.setenv("LOGDIR", "/logs")
    assert data_path(demo) == Path("/elsewhere/cpu_demo")  # DATADIR replaces data/, not what data/ lies in
    assert runs_folder() == Path("/logs")
