"""A run doesn't end because its timeline can't be written."""

from pathlib import Path

from bertbench.runs.timeline import Timeline
from tests.conftest import Captured


def test_records_that_don_t_fit_on_the_disk_raise_one_warning(capsys: Captured) -> None:
    with Timeline(Path("/dev/full")) as timeline:
        timeline.begin("training")
        timeline.ended()
    said = capsys.readouterr().err
    assert said.count("warning: /dev/full: cannot be written (No space left on device)") == said.count("\n") == 1
    assert "the run continues without it" in said
