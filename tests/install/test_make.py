"""`make demo` installs bertbench once, and not at all where pip has installed it by hand."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.docs.listing import REPOSITORY


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A clone with an environment whose Python only writes down how it was called."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(REPOSITORY / name, tmp_path)
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "python").write_text('#!/bin/sh\necho "$@" >>called\n')
    (programs / "python").chmod(0o755)
    return tmp_path


def installs(folder: Path) -> bool:
    """Make what a run needs, and return whether pip was called."""
    called = folder / "called"
    called.unlink(missing_ok=True)
    subprocess.run(["make", ".venv/.run-ready"], cwd=folder, check=True, capture_output=True)
    return called.exists() and "pip install" in called.read_text()


def test_make_installs_once_and_again_after_a_change_of_the_versions(folder: Path) -> None:
    assert installs(folder)
    assert not installs(folder)
    made = (folder / ".venv" / ".run-ready").stat().st_mtime
    os.utime(folder / "constraints.txt", (made + 1, made + 1))
    assert installs(folder)


def test_make_keeps_an_installation_by_hand(folder: Path) -> None:
    shutil.copy(folder / ".venv/bin/python", folder / ".venv/bin/bertbench")
    assert not installs(folder)
