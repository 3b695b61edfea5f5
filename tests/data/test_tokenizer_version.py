"""Datasets that an older tokenizer made are named: by `data verify`, and where they would be reused as exact."""

import json
from pathlib import Path
from random import Random

import pytest

from bertbench.common.errors import DataError
from bertbench.data.text.mlperf import MlperfRecipe
from tests.conftest import Answer, Printed
from tests.data.datasets import made
from tests.tiny import tiny_text


def test_a_dataset_of_the_older_tokenizer_is_named_and_not_reused_as_exact(
    tmp_path: Path, vocab: Path, printed: Printed, answer: Answer
) -> None:
    """Its manifest names no tokenizer version, as none did before there was one."""
    old, text = tmp_path / "old", tmp_path / "text"
    text.write_text(tiny_text(Random(1), articles=9))
    made(old, [text], vocab, MlperfRecipe(1))
    content = json.loads((old / "manifest.json").read_text())
    assert content.pop("tokenizer_version") == 2
    (old / "manifest.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match="found samples of tokenizer 1, expected 2"):
        made(old, [text], vocab, MlperfRecipe(1))
    (warning,) = answer("data", "verify", old)["warnings"]
    assert "prepare the text again into another folder" in warning
    shuffled = tmp_path / "shuffled"
    printed("data", "shuffle", old, "--seed", "1", "--shards", "2", "--out", shuffled)
    (warning,) = answer("data", "verify", shuffled)["warnings"]
    assert "if they come from `--recipe mlperf`" in warning
