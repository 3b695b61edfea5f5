import shutil
from pathlib import Path

import pytest

from tests.data.datasets import vocabulary_of_words


@pytest.fixture
def copied(tiny_folder: Path, tmp_path: Path) -> Path:
    """A copy of the tiny dataset that a test may damage."""
    return Path(shutil.copytree(tiny_folder, tmp_path / "copy"))


@pytest.fixture
def vocab(tmp_path: Path) -> Path:
    return vocabulary_of_words(tmp_path / "vocab.txt")
