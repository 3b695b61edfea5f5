"""Commands that print system files: each prints the same JSON as the code that reads them."""

import json
from pathlib import Path

import pytest

from bertbench.common.paths import SYSTEMS
from tests.conftest import Answer, Printed


def test_config_show_prints_the_resolved_configuration_and_derived_numbers(answer: Answer) -> None:
    shown = answer("config", "show", "dgxa100_n8", "--set", "schedule.max_steps=7")
    assert (shown["schedule"]["max_steps"], shown["derived"]["max_steps"]) == (7, 7)
    assert shown["derived"]["global_batch_size"] == 3072


def test_config_schema_prints_the_schema_that_the_project_keeps(printed: Printed) -> None:
    assert json.loads(printed("config", "schema")) == json.loads((SYSTEMS / "schema.json").read_text())


@pytest.mark.parametrize("place", ["data", "elsewhere"])
def test_weights_are_the_setting_model_checkpoint_from_the_working_directory(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: Printed
) -> None:
    monkeypatch.setenv("DATADIR", str(tmp_path / "data"))
    (tmp_path / place).mkdir()
    monkeypatch.chdir(tmp_path / place)
    words = ["launch", "cpu_demo", "--on", "slurm", "--dry-run", "--weights", "mine.safetensors"]
    # a container has the folder of data in another place, so weights there keep their name in it
    expected = "mine.safetensors" if place == "data" else f"{tmp_path}/elsewhere/mine.safetensors"
    assert f"--set model.checkpoint={expected}" in printed(*words)
