"""What `data verify` remembers of earlier checks, and never trusts too far."""

import os
import time
from pathlib import Path
from typing import Any

import pytest

from bertbench.cli import main
from bertbench.data.mlcommons import record
from tests.data.doctor.small_download import Doctor

STATE = ".bertbench-doctor.json"


@pytest.fixture
def settled(download: Path) -> Path:
    """The download, some clock ticks after its last change."""
    time.sleep(record._CLOCK_TICK_NS / 1e9 + 0.03)
    return download


def spoil(path: Path, content: bytes) -> None:
    """Change a file, but neither its size nor its time."""
    before = path.stat()
    with path.open("r+b") as stream:
        stream.write(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)


def test_a_second_check_reads_only_what_changed_even_with_its_old_size_and_time(settled: Path, doctor: Doctor) -> None:
    first = doctor(settled)
    assert (first["read"], first["remembered"]) == (8, 0)
    assert doctor(settled) == {**first, "read": 0, "remembered": 8}
    spoil(settled / "vocab.txt", b"[PAD]\n[UNX]\n")
    found = doctor(settled)
    assert (found["read"], found["remembered"], list(found["files"])) == (1, 7, ["vocab.txt"])


def test_a_file_that_was_written_a_moment_ago_is_not_remembered(
    settled: Path, doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within one tick of the clock, a second change of the same size could leave the same times."""
    monkeypatch.setattr(record, "_CLOCK_TICK_NS", 3600 * 10**9)
    doctor(settled)
    assert doctor(settled)["remembered"] == 0


@pytest.mark.parametrize(
    "content", [b"", b"{}", b'{"format": "bertbench data verify 2", "md5": [1]}', b"[" * 100_000, b"\0"]
)
def test_a_damaged_memory_is_as_none(settled: Path, doctor: Doctor, content: bytes) -> None:
    (settled / STATE).write_bytes(content)
    found = doctor(settled)
    assert (found["ok"], found["remembered"]) == (True, 0)
    assert doctor(settled)["remembered"] == 8


def test_the_memory_is_never_written_through_a_link_or_into_a_fifo(
    settled: Path, tmp_path: Path, doctor: Doctor
) -> None:
    mine = tmp_path / "mine"
    mine.write_text("precious")
    for make in (lambda path: path.symlink_to(mine), lambda path: path.symlink_to("/dev/zero"), os.mkfifo):
        (settled / STATE).unlink(missing_ok=True)
        make(settled / STATE)
        assert doctor(settled)["ok"]
        assert doctor(settled)["remembered"] == 8
    assert mine.read_text() == "precious"


def test_a_folder_that_can_t_be_written_is_checked_all_the_same(
    settled: Path, tmp_path: Path, doctor: Doctor, capsys: pytest.CaptureFixture[str]
) -> None:
    (settled / STATE).mkdir()  # root writes anywhere else
    assert main(["data", "verify", str(settled)]) == 0
    assert capsys.readouterr().err.count("give --state FILE") == 1
    words = ("--state", str(tmp_path / "state.json"))
    assert [doctor(settled, *words)["remembered"] for _ in range(2)] == [0, 8]


def test_a_check_that_was_stopped_goes_on_where_it_was(
    settled: Path, doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    add, read = record.Record.add, []

    def interrupted(self: record.Record, *arguments: Any) -> None:
        add(self, *arguments)
        read.append(arguments)
        if len(read) == 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(record.Record, "add", interrupted)
        assert main(["data", "verify", str(settled)]) == 130
    found = doctor(settled)
    assert (found["read"], found["remembered"]) == (5, 3)
