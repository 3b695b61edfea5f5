"""Datasets that an older tokenizer made are named: by `data verify`, and where they would be reused as exact."""

import json
from pathlib import Path
from random import Random

import pytest

from bertbench.cli import main
from bertbench.common.errors import DataError
from bertbench.common.progress import Progress
from bertbench.data.store.manifest import Manifest
from bertbench.data.text.mlperf import MlperfRecipe, prepare_mlperf
from bertbench.data.text.vocabulary import SPECIAL_TOKENS
from tests.tiny import tiny_text

QUIET = Progress(False)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A dataset of the mlperf recipe whose manifest names no tokenizer version, as they were before there was one."""
    (tmp_path / "text").write_text(tiny_text(Random(1), articles=9))
    (tmp_path / "vocab.txt").write_text("\n".join((*SPECIAL_TOKENS, "the", "model")) + "\n")
    prepare_mlperf(tmp_path / "old", (tmp_path / "text",), tmp_path / "vocab.txt", MlperfRecipe(1), 1, QUIET)
    path = tmp_path / "old" / "manifest.json"
    content = json.loads(path.read_text())
    assert content.pop("tokenizer_version") == 2
    path.write_text(json.dumps(content))
    return tmp_path / "old"


def test_verify_names_a_dataset_of_the_older_tokenizer(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert Manifest.read(old).tokenizer_version == 1
    assert main(["data", "verify", str(old), "--json"]) == 0
    shown = capsys.readouterr()
    (warning,) = json.loads(shown.out)["warnings"]
    assert "found samples of tokenizer 1, expected 2" in warning
    assert "prepare the text again into another folder" in warning
    assert warning in shown.err
    shuffled = old.with_name("shuffled")
    assert main(["data", "shuffle", str(old), "--seed", "1", "--shards", "2", "--out", str(shuffled)]) == 0
    assert main(["data", "verify", str(shuffled)]) == 0
    assert "if they come from `--recipe mlperf`" in capsys.readouterr().err


def test_a_dataset_of_the_older_tokenizer_is_not_reused_as_exact(old: Path) -> None:
    files = (old.with_name("text"),)
    with pytest.raises(DataError, match="found samples of tokenizer 1, expected 2"):
        prepare_mlperf(old, files, old.with_name("vocab.txt"), MlperfRecipe(1), 1, QUIET)


def test_a_dataset_of_today_verifies_without_a_warning(tiny_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert Manifest.read(tiny_folder).tokenizer_version == 2
    assert main(["data", "verify", str(tiny_folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["warnings"] == []
