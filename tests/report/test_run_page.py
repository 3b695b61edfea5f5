"""The page in a terminal, as a person reads it, at several widths."""

import io
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from bertbench.common.paths import REPOSITORY
from bertbench.report.followed_run import FollowedRun
from bertbench.report.rank_processes import RankProcess
from bertbench.report.run_state import RunState, state_of
from bertbench.report.terminal_page import terminal_page
from tests.report.written import write_run

RANKS = [RankProcess(0, 100, "R"), RankProcess(1, 101, "R"), RankProcess(2, 102, "T")]


def shown(state: RunState, run: FollowedRun, width: int = 120) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(terminal_page(state, run, width))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_first_installation_brings_what_draws_the_page() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    assert any(needed.startswith("rich>") for needed in project["dependencies"])


@pytest.fixture
def going(tmp_path: Path) -> FollowedRun:
    return FollowedRun(write_run(tmp_path, steps=4, until_ms=4000, status=None))


@pytest.mark.parametrize("width", [80, 200])
def test_the_page_fits_its_terminal(going: FollowedRun, width: int) -> None:
    text = shown(state_of(going, RANKS, [600.0]), going, width)
    assert max(map(len, text.splitlines())) <= width
    assert "running" in text
    assert "loss by step" in text


def test_the_page_names_the_straggler_and_when_things_come(going: FollowedRun) -> None:
    state = replace(
        state_of(going, RANKS, [600.0]),
        next_evaluation_s=95.0,
        target_s=4000.0,
        straggler=1,
        straggler_phase="forward",
    )
    text = shown(state, going)
    assert "next evaluation in 0:01:35" in text
    assert "target in about 1:06:40, at 600 samples, by earlier runs of this system" in text
    assert [line.strip() for line in text.splitlines()][-4:] == [
        "ranks on this machine: 3 of 2",
        "rank 0   pid 100",
        "rank 1   pid 101   straggler: slow in forward",
        "rank 2   pid 102   stopped",
    ]
    assert "ranks on this machine: 0 of 2" in shown(state_of(going), going)
