"""The notebook of docs/ideas.md runs cell by cell and prints what the page shows."""

import contextlib
import io
import re
import shlex
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bertbench.cli.main import main
from tests.docs.listing import REPOSITORY

PAGE = REPOSITORY / "docs" / "ideas.md"
_HEADING = "\n## From Python\n"
_CELL = re.compile(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PREPARATION = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SECONDS = re.compile(r"[\d.]+ s\b")
_FRACTION = re.compile(r"\d+\.\d+")


class Cell(NamedTuple):
    code: str
    output: str


def printed(cell: Cell, names: dict[str, Any]) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as output:
        exec(compile(cell.code, str(PAGE), "exec"), names)
    return output.getvalue()


def without_numbers(output: str) -> str:
    return _FRACTION.sub("0.0", _SECONDS.sub("0.0 s", output))


def fractions(output: str) -> list[float]:
    return [float(number) for number in _FRACTION.findall(_SECONDS.sub("", output))]


def test_the_notebook_prints_what_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds differ from machine to machine, and the last digits of other fractions from processor to processor."""
    text = PAGE.read_text().partition(_HEADING)[2]
    cells = [Cell(*found) for found in _CELL.findall(text)]
    assert len(cells) == text.count("```python") > 2
    (tmp_path / "LICENSE").symlink_to(REPOSITORY / "LICENSE")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DATADIR", str(tmp_path / "data"))
    monkeypatch.setenv("LOGDIR", str(tmp_path / "runs"))
    (preparation,) = _PREPARATION.findall(text)
    assert main(shlex.split(preparation.replace("\\\n", " "))[1:]) == 0
    names: dict[str, Any] = {}
    for cell in cells:
        output = printed(cell, names)
        assert without_numbers(output) == without_numbers(cell.output)
        assert fractions(output) == pytest.approx(fractions(cell.output), rel=0.05)


def rewritten() -> str:
    """Return the page with this machine's output below each cell, run in a folder that is the working directory."""
    names: dict[str, Any] = {}
    pattern = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n.*?^```\n)?", re.MULTILINE | re.DOTALL)

    def fresh(found: re.Match[str]) -> str:
        return f"```python\n{found[1]}```\n\n```text\n{printed(Cell(found[1], ''), names)}```\n"

    before, heading, notebook = PAGE.read_text().partition(_HEADING)
    return before + heading + pattern.sub(fresh, notebook)


if __name__ == "__main__":  # with DATADIR and LOGDIR of a scratch folder, after the page's preparation
    sys.stdout.write(rewritten())
