import shutil
from pathlib import Path

import pytest


@pytest.fixture
def copied(tiny_folder: Path, tmp_path: Path) -> Path:
    """A copy of the tiny dataset that a test may damage."""
    return Path(shutil.copytree(tiny_folder, tmp_path / "copy"))
