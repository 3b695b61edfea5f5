"""What `data verify` remembers of earlier checks, and never trusts too far."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from bertbench.cli import main
from bertbench.data.mlcommons import checked
from bertbench.data.mlcommons.published import part_name
from tests.data.doctor.small_download import TEXT_LIST, md5


def state_of(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / ".bertbench-doctor.json").read_text())
    return content


@pytest.fixture
def settled(download: Path) -> Path:
    """The download, some clock ticks after its last change."""
    time.sleep(checked._CLOCK_TICK_NS / 1e9 + 0.03)
    return download


def check_json(folder: Path, capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    main(["data", "verify", str(folder), "--json", *words])
    content: dict[str, Any] = json.loads(capsys.readouterr().out)
    return content


def test_a_second_check_reads_only_what_changed(settled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = check_json(settled, capsys)
    assert (first["read"], first["remembered"]) == (8, 0)
    again = check_json(settled, capsys)
    assert (again["read"], again["remembered"]) == (0, 8)
    assert again["files"] == first["files"]


def test_a_changed_file_is_never_trusted_even_with_its_old_size_and_time(
    settled: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check_json(settled, capsys)
    path = settled / "vocab.txt"
    before = path.stat()
    path.write_bytes(b"[PAD]\n[UNX]\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    found = check_json(settled, capsys)
    assert (found["ok"], found["read"], found["remembered"]) == (False, 1, 7)
    assert [one["path"] for one in found["files"] if one["state"] == "altered"] == ["vocab.txt"]


def test_a_file_that_was_written_a_moment_ago_is_not_remembered(
    settled: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within one tick of the clock, a second change of the same size could leave the same times."""
    monkeypatch.setattr(checked, "_CLOCK_TICK_NS", 3600 * 10**9)
    check_json(settled, capsys)
    assert check_json(settled, capsys)["remembered"] == 0


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"{", id="cut"),
        pytest.param(b"\0" * 99, id="zeros"),
        pytest.param(b"[]", id="a list"),
        pytest.param(b'{"format": "bertbench data doctor 1", "files": {"vocab.txt": 3}}', id="another form"),
        pytest.param(b"[" * 100_000, id="deep"),
        pytest.param(b'{"format": "bertbench data doctor 1", "files": {"a": [[1e999], "b"]}}', id="endless number"),
    ],
)
def test_a_damaged_memory_is_as_none(settled: Path, capsys: pytest.CaptureFixture[str], content: bytes) -> None:
    (settled / ".bertbench-doctor.json").write_bytes(content)
    found = check_json(settled, capsys)
    assert (found["ok"], found["remembered"]) == (True, 0)
    assert len(state_of(settled)["files"]) == 8


def test_the_memory_is_never_written_through_a_link_or_into_a_fifo(
    settled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "mine"
    mine.write_text("precious")
    (settled / ".bertbench-doctor.partial").symlink_to(mine)
    (settled / ".bertbench-doctor.json").symlink_to("/dev/zero")
    assert check_json(settled, capsys)["ok"]
    assert mine.read_text() == "precious"
    (settled / ".bertbench-doctor.json").unlink()
    os.mkfifo(settled / ".bertbench-doctor.partial")
    os.mkfifo(settled / ".bertbench-doctor.json")
    assert check_json(settled, capsys)["ok"]
    assert len(state_of(settled)["files"]) == 8


def test_a_folder_that_can_t_be_written_is_checked_all_the_same(
    settled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (settled / ".bertbench-doctor.json").mkdir()  # root writes anywhere else
    assert main(["data", "verify", str(settled)]) == 0
    assert capsys.readouterr().err.count("give --state FILE") == 1
    elsewhere = tmp_path / "state.json"
    assert check_json(settled, capsys, "--state", str(elsewhere))["read"] == 8
    assert check_json(settled, capsys, "--state", str(elsewhere))["remembered"] == 8


def test_a_check_that_was_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    """With the real table, in a real process: 16 parts of 32 MB, holes that are read as zeros."""
    size, count = 32 << 20, 16
    zeros = md5(bytes(size))
    for number in range(3, 3 + count):
        with (tmp_path / part_name(number)).open("wb") as stream:
            stream.truncate(size)
    listed = "".join(f"{zeros}  {part_name(number)}\n" for number in range(3, 3 + count))
    (tmp_path / TEXT_LIST).write_text(listed)
    time.sleep(0.05)
    code = "import sys; from bertbench.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "data", "verify", str(tmp_path), "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not (tmp_path / ".bertbench-doctor.json").exists() or len(state_of(tmp_path)["files"]) < 2:
        assert time.monotonic() < deadline
        assert process.poll() is None, "it ended before it could be killed"
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    remembered = state_of(tmp_path)["files"]
    assert 2 <= len(remembered) < count
    spoiled = tmp_path / sorted(remembered)[0]
    before = spoiled.stat()
    with spoiled.open("r+b") as stream:
        stream.seek(12_345_678)
        stream.write(b"1")
    os.utime(spoiled, ns=(before.st_atime_ns, before.st_mtime_ns))
    second = subprocess.run(command, capture_output=True, check=False)
    assert second.returncode == 1
    content = json.loads(second.stdout)
    assert (content["remembered"], content["read"]) == (len(remembered) - 1, count - len(remembered) + 1)
    states = {one["path"]: one["state"] for one in content["files"] if one["name"] and one["state"] != "missing"}
    assert states.pop(spoiled.name) == "altered"
    assert set(states.values()) == {"right"}
