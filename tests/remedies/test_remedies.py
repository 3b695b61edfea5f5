"""Commands, options and settings in messages exist, and the first messages that a user meets lead on."""

import json
import re
import shlex
from collections.abc import Iterator
from contextlib import redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path

import pytest

from bertbench.cli.commands import COMMANDS, called_by
from bertbench.cli.main import main
from bertbench.common.errors import DataError
from bertbench.config import System, load_system, system_names
from bertbench.config.partial import section_of
from bertbench.loading.inputs import open_data
from tests.conftest import Printed
from tests.remedies.messages import Text, texts

_OPTION = re.compile(r"(?<![\w`.-])--[a-z][a-z0-9-]+")
_SETTING = re.compile(r"\b([a-z]+)((?:\.[a-z][a-z0-9_]*)+)(?![a-z0-9_*]|\()")
_NOT_OURS = {"--signal", "--close", "--reason", "--resolve"}  # of sbatch, and what only run.sub gives
_OLD_NAMES = "renamed.py"
_STYLES = ("\n:root {", "svg ", "--series-")
_FILES = {"model.safetensors", "model.ckpt", "checkpoint.md", "data.md", "finetune.md"}


@cache
def options_of(path: str) -> set[str]:
    """The options that a command's help lists."""
    printed = StringIO()
    with redirect_stdout(printed), pytest.raises(SystemExit):
        main([*path.split(), "--help"])
    return set(re.findall(r"--[a-z][a-z0-9-]+", printed.getvalue()))


def command_of(words: list[str]) -> str | None:
    command = called_by(words)
    return command and command.name


def sentences() -> Iterator[Text]:
    """Return texts that a person reads: several words, but no style sheets and no old names of commands."""
    return (
        text
        for text in texts()
        if " " in text.text.strip() and not text.text.startswith(_STYLES) and text.file.name != _OLD_NAMES
    )


def where(text: Text) -> str:
    return f"{text.file.name}:{text.line}: {text.text[:120]}"


def commands_in(message: str) -> list[list[str]]:
    """Return the bertbench commands that a message suggests, as words."""
    return [shlex.split(match) for match in re.findall(r"`(?:srun [^`]*?)?bertbench ([^`]*)`", message)]


def has_options(path: str, words: list[str]) -> bool:
    return {word for word in words if word.startswith("--")} <= options_of(path)


def test_every_command_that_a_message_names_exists_and_has_the_options_named_with_it() -> None:
    found = [(text, words) for text in sentences() for words in commands_in(text.text)]
    assert len(found) >= 15
    for text, words in found:
        path = command_of(words)
        assert path is not None, where(text)
        assert has_options(path, words), where(text)


def test_every_option_that_a_message_names_is_a_command_s() -> None:
    known = set().union(*(options_of(command.name) for command in COMMANDS)) | _NOT_OURS
    found = [(text, option) for text in sentences() for option in _OPTION.findall(text.text)]
    assert len(found) >= 40
    for text, option in found:
        outside = text.text.replace("`", " ").partition(option)[0].split()
        if not any(word in ("srun", "sbatch", "torchrun", "docker", "pip") for word in outside):
            assert option in known, where(text)


def test_every_setting_that_a_message_names_is_a_systems() -> None:
    sections = {field.alias or name for name, field in System.model_fields.items() if section_of(field)}
    found = [
        (text, match[0])
        for text in sentences()
        for match in _SETTING.finditer(text.text)
        if match[1] in sections and match[0] not in _FILES
    ]
    assert len(found) >= 60
    for text, name in found:
        place: type | None = System
        for part in name.split("."):
            assert place is not None, where(text)
            fields = {field.alias or key: field for key, field in place.model_fields.items()}
            assert part in fields or part == "X", where(text)
            place = section_of(fields[part]) if part in fields else None


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


@pytest.mark.parametrize("command", ["train", "preflight"])
def test_a_system_of_several_nodes_is_sent_to_commands_that_take_it(
    printed: Printed, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("CONT", "registry.example.org/bertbench:1")  # kubernetes asks for it
    said = printed(command, "dgxa100_n8", code=2)
    suggested = commands_in(said)
    assert suggested
    for words in suggested:
        path = command_of(words)
        assert has_options(path, words)
        if path == "launch":
            printed(*words, *([] if "--dry-run" in words else ["--dry-run"]))
    if command == "preflight":
        assert "srun --mpi=none --ntasks-per-node=8 bertbench preflight dgxa100_n8" in said
        assert "--on" not in said


def test_a_misspelt_system_leads_to_the_list_and_the_right_one(printed: Printed) -> None:
    said = printed("config", "show", "dgxa100-n8", code=2)
    suggested = re.search(r"did you mean (\w+)\?", said)
    assert suggested[1] in system_names()
    printed("config", "show", suggested[1])
    (command,) = commands_in(said)
    printed(*command)
