"""Every command in the docs works: fast ones are run, and all others are parsed by the command line."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bertbench.cli import main as command_line
from bertbench.cli.commands import Command as Leaf
from bertbench.cli.commands import callable_by, called_by
from tests.conftest import Captured
from tests.docs.conftest import Done, plain
from tests.docs.listing import PAGES, REPOSITORY, Command, commands, spans
from tests.docs.not_run import NOT_RUN, is_run, matches

EXIT_CODES = {
    "python -m compliance results/cpu_demo/bert/result_0.txt --division closed": 1,  # the page shows a verdict: fail
    "python -m compliance docs/examples/review": 1,  # three of its logs are bad
    "python -m compliance docs/examples/review/result_1.txt": 1,
    "python -m compliance docs/examples/review/result_2.txt": 1,
    "python -m compliance docs/examples/review/result_3.txt": 1,
    "bertbench plan dgxa100_n128 --strict": 1,  # without MLPerf's data there are problems to report
}
"""Of the commands that don't end with 0."""
SLOW = ("bertbench plan *", "* --layouts")
TRAINS = ("train", "finetune", "prepare")
SHOWN = commands()


def begins(command: Command) -> str:
    return command.text[:60]


def is_slow(command: Command) -> bool:
    return any(matches(command, pattern) for pattern in SLOW)


RUN = [command for command in SHOWN if is_run(command)]
TRAINING = [command for command in RUN if set(TRAINS) & set(command.words)]
SLOW_HERE = [command for command in RUN if is_slow(command)]
QUICK = [command for command in RUN if command not in TRAINING and not is_slow(command)]


def leaf(words: list[str]) -> Leaf:
    """The command that the words call."""
    called = called_by(words)
    assert called, f"no command: bertbench {' '.join(words)}"
    return called


def inner(command: Command) -> list[str]:
    """Return bertbench's words in a command, also behind torchrun or srun; empty if it calls another program."""
    words = plain(command.words)
    for at, word in enumerate(words):
        if word == "./run_and_time.sh":
            return ["launch", *words[at + 1 :]]
        if word == "bertbench" and words[0] != "docker":
            return words[at + 1 :]
    return []


def check_names(words: list[str], capsys: Captured) -> None:
    """A sentence may omit words, so only the names of the command and its options are checked, against the help."""
    with pytest.raises(SystemExit):
        command_line.main([*leaf(words).words, "--help"])
    known = set(re.findall(r"--[a-z][a-z-]*", capsys.readouterr().out))
    assert {word.split("=")[0].rstrip(",") for word in words if word.startswith("--")} <= known


def check_output(command: Command, done: Done) -> None:
    """Every line shown below a command is one that it prints."""
    assert set(command.output) <= set(done.output.replace(f"{REPOSITORY}/", "./").splitlines())


def test_all_pages_show_commands() -> None:
    assert len(SHOWN) > 60
    assert len(QUICK) > 17
    assert {"README.md", "running.md", "formats.md"} <= {command.page for command in QUICK}


def test_every_exception_is_for_a_command_that_a_page_shows() -> None:
    exceptions = [*(pattern for patterns in NOT_RUN.values() for pattern in patterns), *EXIT_CODES, *SLOW]
    for pattern in exceptions:
        assert any(matches(command, pattern) for command in SHOWN), pattern


@pytest.mark.parametrize("command", [c for c in SHOWN if inner(c)], ids=begins)
def test_a_command_is_one_that_the_command_line_accepts(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    words = inner(command)
    if "..." in command.words:
        check_names(words, capsys)
        return
    monkeypatch.chdir(tmp_path)
    if command.words[0] == "./run_and_time.sh":
        monkeypatch.setenv("DGXSYSTEM", "cpu_demo")  # of the file that its block sources
    for name in (word for word in words if word.endswith(".json") and "/" not in word):
        shutil.copy(REPOSITORY / "benchmarks" / "bert" / "systems" / "cpu_demo.json", name)  # the reader's system file
    run = "cpu_demo/bert/result_0"  # and the reader's run
    shutil.copytree(REPOSITORY / "results" / run, tmp_path / "runs" / run)
    called = leaf(words)._replace(run=lambda _: 0)
    monkeypatch.setattr(command_line, "called_by", lambda _: called)
    monkeypatch.setattr(command_line, "callable_by", lambda _: (called,))
    assert command_line.main(words) == 0


@pytest.mark.parametrize("command", spans(), ids=begins)
def test_a_command_in_a_sentence_has_names_that_exist(command: Command, capsys: Captured) -> None:
    words = list(command.words[1:])
    groups = {c.words[0] for c in callable_by(words) if len(c.words) > 1}
    if words[0] in groups and len(words) == 1:
        return
    check_names(words, capsys)


def test_the_targets_of_make_exist() -> None:
    pages = " ".join(page.read_text() for page in PAGES)
    named = set(re.findall(r"`make ([a-z-]+)", pages)) | {c.words[1] for c in SHOWN if c.words[0] == "make"}
    targets = set(re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))
    assert {"demo", "test"} <= named <= targets


@pytest.mark.parametrize("command", QUICK, ids=begins)
def test_a_command_that_takes_seconds_works(command: Command, printed: Callable[[str], Done]) -> None:
    done = printed(command.text)
    assert done.code == EXIT_CODES.get(command.text, 0), done.output
    assert done.output
    check_output(command, done)


@pytest.mark.slow
@pytest.mark.parametrize("command", SLOW_HERE, ids=begins)
def test_a_command_that_takes_a_minute_works(command: Command, printed: Callable[[str], Done]) -> None:
    for earlier in QUICK:
        if "--out" in earlier.words and earlier.words[earlier.words.index("--out") + 1] in command.words:
            printed(earlier.text)  # it writes what this one reads
    done = printed(command.text)
    assert done.code == EXIT_CODES.get(command.text, 0), done.output
    if "plan" in command.words:
        assert "problem" in done.output, "MLPerf's data isn't here"
    check_output(command, done)


@pytest.mark.slow
def test_commands_that_train_work_one_after_the_other(place: Path) -> None:
    environment = {**os.environ, "DATADIR": str(place / "data"), "LOGDIR": str(place / "runs")}
    order = sorted(TRAINING, key=lambda command: "prepare" not in command.words)
    assert {"finetune squad", "train cpu_demo"} <= {" ".join(c.words[1:3]) for c in order}
    for command in order:
        words = plain(command.words)[1:]
        finetunes = words[:2] == ["finetune", "squad"] and "--score" not in words
        brief = ["--set", "finetune.epochs=1"] if finetunes else []
        done = subprocess.run(
            [sys.executable, "-m", "bertbench", *words, *brief], cwd=place, env=environment,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{shlex.join(words)}: {done.stderr}"
        if finetunes:  # no machine or vocabulary changes this part of the page
            shown = re.search(r"; starts from .*", (REPOSITORY / "docs" / "finetuning.md").read_text())
            assert shown
            assert shown[0] in done.stderr + done.stdout
