"""A run whose dataset is missing names the commands that make it, and these make it."""

import json
import re
import shlex
from pathlib import Path

import pytest

from bertbench.common.errors import DataError
from bertbench.config import load_system
from bertbench.loading.inputs import open_data
from tests.conftest import Printed


def commands_in(message: str) -> list[list[str]]:
    """Return the bertbench commands that a message suggests, as words."""
    return [shlex.split(match) for match in re.findall(r"`bertbench ([^`]*)`", message)]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATADIR", str(tmp_path / "data"))
    monkeypatch.setenv("LOGDIR", str(tmp_path / "runs"))
    monkeypatch.chdir(tmp_path)


def test_a_system_without_a_recipe_is_sent_to_mlperfs_text_and_the_command_leads_on(
    printed: Printed, tmp_path: Path, text: Path
) -> None:
    with pytest.raises(DataError) as refused:
        open_data(load_system("dgxa100_n8"))
    prepare, shuffle, of_evaluation = commands_in(str(refused.value))
    assert of_evaluation[-4:] == ["--select-eval", "10000", "--out", str(tmp_path / "data" / "wiki_eval")]
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text(
        "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "the", "model", "words"]) + "\n"
    )
    given = {"--text": text, "--vocab": vocabulary}
    printed(*[given.get(prepare[place - 1], word) for place, word in enumerate(prepare)], "--dupe-factor", 1)
    printed(*["1" if word == "4320" else word for word in shuffle])  # so few samples fill no more shards
    assert (tmp_path / "data" / "wiki" / "manifest.json").is_file()


def test_a_system_with_a_recipe_is_prepared_by_the_command_that_a_run_suggests(
    printed: Printed, tmp_path: Path, text: Path, tiny_file: str
) -> None:
    content = json.loads(Path(tiny_file).read_text())
    content["data"]["path"] = "mine"
    path = tmp_path / "my systems" / "mine.json"
    path.parent.mkdir()
    path.write_text(json.dumps(content))
    (command,) = commands_in(printed("train", path, code=2))
    printed(*command, "--text", text)
    assert (tmp_path / "data" / "mine" / "manifest.json").is_file()
