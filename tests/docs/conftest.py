"""A folder in which the commands of the docs run, so that they write nothing into the repository."""

import contextlib
import io
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from bertbench.cli.main import main
from compliance.__main__ import main as judge
from tests.docs.listing import REPOSITORY

STAND_INS = {"SYSTEM": "cpu_demo", "R": "5.0.0", "D": "open"}
"""What is put for a reader's choice; other words in capitals are files of that name in the folder."""


class Done(NamedTuple):
    """The exit code and the output of a command."""

    code: int
    output: str


def plain(words: tuple[str, ...]) -> list[str]:
    """Return the words that a user would type: options in brackets are included, and `NAME...` is one name."""
    typed = (word.removeprefix("[").removesuffix("]").removesuffix("...") for word in words)
    return [STAND_INS.get(word, word) for word in typed if word]


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory, tiny_folder: Path) -> Path:
    """A folder with what the docs' relative paths name, and small data under the names DIR and OTHER."""
    folder = tmp_path_factory.mktemp("docs")
    for name in ("results", "tests", "docs", "LICENSE"):
        (folder / name).symlink_to(REPOSITORY / name)
    for name in ("DIR", "OTHER"):
        shutil.copytree(tiny_folder, folder / name)
    shutil.copytree(REPOSITORY / "results" / "cpu_demo", folder / "runs" / "mine")
    logs = [REPOSITORY / "results" / "cpu_demo" / "bert" / f"result_{number}.txt" for number in range(3)]
    for name, log in zip("AB", logs[:2], strict=True):
        (folder / name).symlink_to(log)
    kept, cleared = '"key": "cache_clear", "value": false', '"key": "cache_clear", "value": true'
    (folder / "PATH").write_text(logs[2].read_text().replace(kept, cleared))  # --strict asks for it
    return folder


@pytest.fixture(scope="session")
def printed(place: Path) -> Callable[[str], Done]:
    """Run a command in the folder, once."""
    seen: dict[str, Done] = {}
    variables = {"DATADIR": str(place), "LOGDIR": str(place / "runs")}

    def run(command: str) -> Done:
        if command not in seen:
            program, *words = plain(tuple(command.split()))
            entry, words = (main, words) if program == "bertbench" else (judge, words[2:])  # python -m compliance
            with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as output:
                patch.setattr(sys, "stderr", output)
                for name, value in variables.items():
                    patch.setenv(name, value)
                patch.chdir(place)
                seen[command] = Done(entry(words), output.getvalue())
        return seen[command]

    return run
