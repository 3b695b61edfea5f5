"""Where a run writes its files."""

from pathlib import Path

import pytest

from bertbench.common.errors import ConfigError
from bertbench.runs.files import reserve_number


def test_a_file_in_place_of_the_folder_of_runs_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "bert").touch()
    with pytest.raises(ConfigError, match=r"toy/bert: cannot be written \(File exists\); set LOGDIR to a folder"):
        reserve_number(tmp_path, "toy")
