"""A torch that the tests haven't run on is named as a run starts."""

import sys
from contextlib import redirect_stderr
from io import StringIO

import pytest

from bertbench.cli.main import main
from bertbench.launch import rank
from bertbench.machine.torch_version import untested
from lab.spawn import environments_of
from tests.ranks import answers_of


@pytest.mark.parametrize("version", ["2.11.0a0+eb65b36914.nv26.02", "2.14.1+cu130"])
def test_the_oldest_and_the_newest_tested_torch_raise_no_warning(version: str) -> None:
    assert untested(version) is None


@pytest.mark.parametrize("version", ["2.9.1", "2.15.0+cu132"])
def test_an_older_and_a_newer_torch_are_named(version: str) -> None:
    assert f"torch {version}" in (untested(version) or "")


def preflight_on_an_untested_torch(system: str) -> str:
    rank.untested = lambda: untested("2.15.0")
    said = StringIO()
    with redirect_stderr(said):
        main(["preflight", system])
    sys.stdout.flush()
    return said.getvalue()


def test_one_rank_of_a_command_says_that_its_torch_is_untested(tiny_file: str) -> None:
    answers = answers_of(environments_of(2), preflight_on_an_untested_torch, tiny_file)
    warnings = [text.count("warning: torch 2.15.0 is untested") for _, text in answers]
    assert warnings == [1, 0], answers
