"""docs/tutorial.md explains the lines that its commands print, and a run still prints lines of these kinds."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.listing import REPOSITORY

PAGE = (REPOSITORY / "docs" / "tutorial.md").read_text()
RECORD = json.loads((REPOSITORY / "results" / "first_run.json").read_text())
PRINTED = RECORD["printed"]
RUN = PRINTED["./run_and_time.sh cpu_demo"]


def kinds(lines: list[str]) -> list[str]:
    """The first word of each line, each once: `step`, `after`, `judge` and so on."""
    return list(dict.fromkeys(line.split()[0] for line in lines if line.strip()))


def test_the_page_shows_every_command_of_the_record() -> None:
    assert re.findall(r"<!-- shown: first run: (.+) -->", PAGE) == list(PRINTED)


def test_the_page_explains_only_what_the_commands_printed() -> None:
    output = "\n".join(line for lines in PRINTED.values() for line in lines)
    of_the_run = PAGE.partition("## What is trained")[0]
    rows = re.findall(r"^\| (`.+?) \| ", of_the_run, re.MULTILINE)
    explained = [part for row in rows for span in re.findall(r"`(.+?)`", row) for part in span.split("...")]
    files = PAGE[PAGE.index("## What the run left") :]
    missing = [part.strip() for part in explained if part.strip(", ") not in output and part not in files]
    assert len(explained) > 20
    assert missing == []


def test_the_page_explains_every_kind_of_line_before_the_clock_starts() -> None:
    before = RUN[: next(place for place, line in enumerate(RUN) if line.startswith("step "))]
    assert [kind for kind in kinds(before) if f"| `{kind}" not in PAGE] == []


@pytest.mark.slow
def test_a_run_prints_lines_of_the_recorded_kinds(tmp_path: Path) -> None:
    environment = {**os.environ, "DATADIR": str(tmp_path / "data"), "LOGDIR": str(tmp_path / "runs")}
    for words in (["data", "prepare", "--system", "cpu_demo"], ["launch", "cpu_demo"]):
        done = subprocess.run(
            [sys.executable, "-m", "bertbench", *words], env=environment, capture_output=True, text=True, check=True
        )
    printed = kinds((done.stderr + done.stdout).splitlines())
    assert set(kinds(RUN)) - {"step"} <= set(printed)  # a fast run prints no line of progress
