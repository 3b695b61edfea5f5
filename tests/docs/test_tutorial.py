"""The tutorial's run still prints lines of the kinds that its page shows."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.listing import REPOSITORY

RECORD = json.loads((REPOSITORY / "results" / "first_run.json").read_text())
RUN = RECORD["printed"]["./run_and_time.sh cpu_demo"]


def kinds(lines: list[str]) -> list[str]:
    """The first word of each line, each once: `step`, `after`, `judge` and so on."""
    return list(dict.fromkeys(line.split()[0] for line in lines if line.strip()))


NOT_IN_EVERY_RUN = {"step", "compiling"}
"""A fast run prints no line of progress, and only the first run on a machine compiles its loops."""


@pytest.mark.slow
def test_a_run_prints_lines_of_the_recorded_kinds(tmp_path: Path) -> None:
    environment = {**os.environ, "DATADIR": str(tmp_path / "data"), "LOGDIR": str(tmp_path / "runs")}
    for words in (["data", "prepare", "--system", "cpu_demo"], ["launch", "cpu_demo"]):
        done = subprocess.run(
            [sys.executable, "-m", "bertbench", *words], env=environment, capture_output=True, text=True, check=True
        )
    printed = kinds((done.stderr + done.stdout).splitlines())
    assert set(kinds(RUN)) - NOT_IN_EVERY_RUN <= set(printed)
