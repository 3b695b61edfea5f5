"""The commands that a user types: all are parsed, and those that need no GPU are run.

Commands that train, or read what the reader has downloaded, are parsed only. test_tutorial.py runs the tutorial's
training, test_submitters.py the lines of the cluster page that source a file, and tests/slurm queues them.
"""

import contextlib
import io
import os
import re
import shutil
from pathlib import Path

import pytest

import compliance.__main__ as judge
from bertbench.cli import main as command_line
from bertbench.cli.commands import called_by
from tests.docs.listing import REPOSITORY, Command, commands

PAGES = [
    REPOSITORY / "README.md",
    *(REPOSITORY / "docs" / f"{name}.md" for name in ("tutorial", "running", "cluster", "data", "judging")),
]
RECORDED = REPOSITORY / "results" / "cpu_demo"
RUN_HERE = ("config", "plan", "launch", "report", "compare", "judge", "package")
"""Commands that need neither a GPU nor a dataset; `launch` only prints what it would start."""


def words_of(command: Command) -> list[str]:
    """Return bertbench's words in a command, also behind srun; empty if it calls another program."""
    words = ["cpu_demo" if word == "SYSTEM" else os.path.expandvars(word) for word in command.words]
    for place, word in enumerate(words):
        if word == "./run_and_time.sh":
            return ["launch", *words[place + 1 :]]
        if word == "bertbench":
            return words[place + 1 :]
    return []


def bertbench_commands() -> list[Command]:
    shown = [command for page in PAGES for command in commands(page) if words_of(command)]
    return list(dict.fromkeys(shown))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of a reader who has done the runs of the pages."""
    (tmp_path / "results").symlink_to(RECORDED.parent)
    (tmp_path / "docs").symlink_to(REPOSITORY / "docs")
    for name in ("cpu_demo", "mine"):
        shutil.copytree(RECORDED, tmp_path / "runs" / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DATADIR", str(tmp_path / "data"))
    monkeypatch.setenv("LOGDIR", str(tmp_path / "runs"))
    return tmp_path


@pytest.mark.parametrize("command", bertbench_commands(), ids=lambda command: command.text[:60])
def test_the_command_line_accepts_a_command(command: Command, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = words_of(command)
    if command.words[0] == "./run_and_time.sh":
        monkeypatch.setenv("DGXSYSTEM", "cpu_demo")  # of the file that its block sources
    for name in (word for word in words if word.endswith(".json")):
        Path(name).parent.mkdir(exist_ok=True)
        shutil.copy(REPOSITORY / "benchmarks" / "bert" / "systems" / "cpu_demo.json", name)  # the reader's system file
    called = called_by(words)
    assert called, f"no command: bertbench {' '.join(words)}"
    only_parsed = called._replace(run=lambda _: 0)
    monkeypatch.setattr(command_line, "called_by", lambda _: only_parsed)
    monkeypatch.setattr(command_line, "callable_by", lambda _: (only_parsed,))
    assert command_line.main(words) == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_commands_of_a_page_work_one_after_the_other(page: Path, folder: Path) -> None:
    for command in commands(page):
        words = words_of(command)
        program = command_line.main
        if command.words[:3] == ("python", "-m", "compliance"):
            words = list(command.words[3:])
            program = judge.main
        elif not words or words[0] not in RUN_HERE or command.words[0] != "bertbench":
            continue
        if any(word.partition("/")[0] == "DIR" for word in words):  # a package of the reader's own runs
            continue
        if words[0] == "launch" and "--dry-run" not in words:
            words.append("--dry-run")
        if program is command_line.main and words[0] == "package":
            words.append("--allow-dirty")  # whoever runs this test may be changing the sources
        with contextlib.redirect_stdout(io.StringIO()) as output, contextlib.redirect_stderr(output):
            code = program(words)
        printed = output.getvalue()
        fails_as_shown = "--strict" in words or any(re.search(r"^FAIL|error|\d fail", line) for line in command.output)
        assert code == int(fails_as_shown), f"{command.text}: {printed}"
        if page.stem != "tutorial":  # which shows one recorded run (docs/site/first_run.py)
            lines = printed.replace(str(REPOSITORY), "/home/me/bertbench").splitlines()
            assert set(command.output) <= set(lines), command.text


def test_the_targets_of_make_exist() -> None:
    named = {command.words[1] for page in PAGES for command in commands(page) if command.words[0] == "make"}
    targets = set(re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))
    assert "demo" in named
    assert named <= targets
