"""A program in the place of ipmitool."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def ipmitool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Put a program of that name first on the path; it runs these lines of a shell."""
    program = tmp_path / "bin" / "ipmitool"
    program.parent.mkdir()
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")

    def install(lines: str) -> None:
        program.write_text(f"#!/bin/sh\n{lines}\n")
        program.chmod(0o755)

    return install
