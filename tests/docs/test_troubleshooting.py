"""docs/troubleshooting.md shows messages as bertbench prints them: each fault is made here, its message looked up."""

import platform
import re
import shutil
import signal
import socket
from pathlib import Path

import pytest
import torch

from bertbench.cli.main import main
from bertbench.common.errors import DataError
from bertbench.data.store.dataset import Dataset
from bertbench.launch import local
from tests.conftest import Captured
from tests.docs.listing import REPOSITORY

PAGE = (REPOSITORY / "docs" / "troubleshooting.md").read_text()
LINES = PAGE.splitlines()


def message(words: list[str], capsys: Captured) -> str:
    """The last line that a failing command prints, with this machine's name as the page writes it."""
    assert main(words) in {1, 2}
    return capsys.readouterr().err.splitlines()[-1].replace(f"{platform.node()}:", "node1:")


@pytest.mark.skipif(torch.cuda.is_available(), reason="finds a GPU")
def test_a_machine_without_gpus(capsys: Captured) -> None:
    assert message(["launch", "gpu_1"], capsys) in LINES


def test_a_port_that_another_program_uses(capsys: Captured) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        printed = message(["launch", "cpu_demo", "--smoke", "--set", f"launch.port={port}"], capsys)
    assert printed.replace(str(port), "29555") in LINES


def test_data_that_isnt_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.setenv("DATADIR", str(tmp_path))
    monkeypatch.setenv("LOGDIR", str(tmp_path))
    printed = message(["train", "cpu_demo", "--smoke"], capsys)
    assert printed.replace(str(tmp_path), "data") in LINES


def test_a_shard_that_was_cut(tiny_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_folder, tmp_path / "cpu_demo")
    shard = tmp_path / "cpu_demo" / "train" / "part_00000.h5"
    size = shard.stat().st_size
    shard.write_bytes(shard.read_bytes()[:-100])
    with pytest.raises(DataError) as refused:
        Dataset.open(tmp_path / "cpu_demo", "train")
    printed = f"bertbench: {refused.value}".replace(str(tmp_path), "data")
    assert printed.replace(f"{size:,}", "7,612,530").replace(f"{size - 100:,}", "7,612,430") in LINES


@pytest.mark.parametrize(
    "words", [["train", "cpu_dmo"], ["train", "cpu_demo", "--set", "optimizer.learning_rat=1"]], ids=" ".join
)
def test_a_misspelt_name(words: list[str], capsys: Captured) -> None:
    assert message(words, capsys) in LINES


def test_a_rank_that_the_kernel_killed() -> None:
    assert local.ended_by_signal(1, signal.SIGKILL, out_of_memory=True).reason in LINES


def test_every_symptom_of_the_first_table_has_its_section() -> None:
    headings = {line.removeprefix("## ") for line in LINES if line.startswith("## ")}
    linked = set(re.findall(r"^\|.*\| \[(.+?)\]\(#", PAGE, re.MULTILINE))
    assert len(linked) == 10
    assert linked == headings - {"Exit codes", "Report a problem"}
