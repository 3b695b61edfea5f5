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


def test_a_dataset_of_the_older_tokenizer_is_named_and_not_reused_as_exact(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its manifest names no tokenizer version, as none did before there was one."""
    old, text, vocab = (tmp_path / name for name in ("old", "text", "vocab.txt"))
    text.write_text(tiny_text(Random(1), articles=9))
    vocab.write_text("\n".join((*SPECIAL_TOKENS, "the", "model")) + "\n")
    prepare_mlperf(old, (text,), vocab, MlperfRecipe(1), 1, QUIET)
    content = json.loads((old / "manifest.json").read_text())
    assert content.pop("tokenizer_version") == 2
    (old / "manifest.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match="found samples of tokenizer 1, expected 2"):
        prepare_mlperf(old, (text,), vocab, MlperfRecipe(1), 1, QUIET)
    assert main(["data", "verify", str(old), "--json"]) == 0
    shown = capsys.readouterr()
    (warning,) = json.loads(shown.out)["warnings"]
    assert "prepare the text again into another folder" in warning
    assert warning in shown.err
    shuffled = str(tmp_path / "shuffled")
    assert main(["data", "shuffle", str(old), "--seed", "1", "--shards", "2", "--out", shuffled]) == 0
    assert main(["data", "verify", shuffled]) == 0
    assert "if they come from `--recipe mlperf`" in capsys.readouterr().err


def test_a_dataset_of_today_verifies_without_a_warning(tiny_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert Manifest.read(tiny_folder).tokenizer_version == 2
    assert main(["data", "verify", str(tiny_folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["warnings"] == []
