"""A tiny system and its data, made here once a session; nothing is copied into the repository.

`make test-floor` and gpu_check.sh's machines have no pydantic: what imports it is skipped there, so nothing here may.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from tests.tiny import TINY_SYSTEM, tiny_system, tiny_text

if TYPE_CHECKING:
    from bertbench.config import System

os.environ["TOKENIZERS_PARALLELISM"] = "false"  # tests fork
for _number in (signal.SIGINT, signal.SIGHUP):  # of a suite in the background or under nohup, commands would obey that
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, signal.SIG_DFL)


@pytest.fixture(autouse=True)
def _same_environment() -> Iterator[None]:
    """Restore the environment variables that a command called in this process sets for its ranks."""
    before = dict(os.environ)
    yield
    for name in os.environ.keys() - before.keys():
        del os.environ[name]
    os.environ.update(before)


Captured = pytest.CaptureFixture[str]
Tiny = Callable[..., "System"]
Answer = Callable[..., Any]
Printed = Callable[..., str]


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Printed:
    """Call a command that must end with `code`; return its standard output, or else its standard error."""
    from bertbench.cli.main import main  # noqa: PLC0415 - pydantic

    def call(*words: object, code: int = 0) -> str:
        capsys.readouterr()
        assert main([*map(str, words)]) == code
        out, err = capsys.readouterr()
        return out or err

    return call


@pytest.fixture
def answer(printed: Printed) -> Answer:
    """Call a command with --json that must end with `code`; return the parsed JSON."""
    return lambda *words, code=0: json.loads(printed(*words, "--json", code=code))


Program = Callable[[str, str], None]


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    """Put a program of this name first on the path; it runs these lines of shell."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def install(name: str, lines: str) -> None:
        (folder / name).write_text(f"#!/bin/sh\n{lines}\n")
        (folder / name).chmod(0o755)

    return install


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "articles.txt"
    path.write_text(tiny_text(Random(7), articles=60))
    return path


@pytest.fixture(scope="session")
def _small_shards() -> Iterator[None]:
    """Let datasets have several shards, even a small one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bertbench.data.text.prepare.SHARD_SAMPLES", 31)
        yield


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory, text: Path, _small_shards: None) -> Path:
    """A prepared dataset for the tiny system."""
    from bertbench.cli.main import main  # noqa: PLC0415 - pydantic

    out = tmp_path_factory.mktemp("tiny") / "data"
    system = write_json(out.parent / "tiny.json", TINY_SYSTEM)
    assert main(["data", "prepare", "--system", system, "--text", str(text), "--out", str(out)]) == 0
    return out


@pytest.fixture
def tiny(tiny_file: str) -> Tiny:
    """Load the tiny system with overrides and its data."""
    from bertbench.config import load_system  # noqa: PLC0415 - pydantic

    return lambda *overrides: load_system(tiny_file, overrides)


@pytest.fixture
def tiny_file(tmp_path: Path, tiny_folder: Path) -> str:
    """Path of the tiny system's file."""
    return write_json(tmp_path / "tiny.json", tiny_system(tiny_folder))


def write_json(path: Path, content: object) -> str:
    """Write the file; return its path as an argument for commands."""
    path.write_text(json.dumps(content))
    return str(path)
