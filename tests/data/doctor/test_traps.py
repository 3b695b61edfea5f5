"""`data verify` on hostile folders: it doesn't hang, doesn't read for ever, and prints nothing unescaped."""

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from bertbench.cli.main import main
from bertbench.data.mlcommons import listing
from bertbench.data.mlcommons.published import part_name
from compliance.read.record import printable
from tests.data.doctor.small_download import Doctor


def test_nothing_but_files_is_read_and_nothing_hangs(download: Path, doctor: Doctor) -> None:
    """Things that would hang, never end or mislead, under published names."""
    text = download / "text"
    for path in (text / part_name(1), text / part_name(2), text / "eval.txt", download / "vocab.txt"):
        path.unlink()
    (download / "bert_config.json").unlink()
    os.mkfifo(text / part_name(1))
    (text / part_name(2)).symlink_to("/dev/zero")
    (text / "eval.txt").mkdir()
    (download / "vocab.txt").symlink_to(download / "nowhere")
    with socket.socket(socket.AF_UNIX) as listener:
        here = Path.cwd()
        os.chdir(download)  # a socket's path is short
        listener.bind("bert_config.json")
        os.chdir(here)
    (download / "loop").symlink_to(download)
    (download / "itself").symlink_to(download / "itself")
    (download / "endless.md5").symlink_to("/dev/zero")
    os.mkfifo(download / "list.md5")
    assert {path: one["detail"] for path, one in doctor(download)["files"].items()} == {
        f"text/{part_name(1)}": "no regular file",
        f"text/{part_name(2)}": "no regular file",
        "eval.txt": "",  # missing
        "vocab.txt": "unreadable (No such file or directory)",
        "bert_config.json": "no regular file",
        "loop": "a link to a folder",
        "itself": "unreadable (Too many levels of symbolic links)",
        "endless.md5": "no regular file",
        "list.md5": "no regular file",
    }


def test_a_file_that_grows_while_it_is_read_is_not_called_right(
    download: Path, doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = listing.listing(download)
    with (download / "vocab.txt").open("ab") as stream:
        stream.write(b"more")
    monkeypatch.setattr("bertbench.data.mlcommons.check.listing", lambda folder: listed)
    assert doctor(download)["files"]["vocab.txt"]["state"] == "altered"


def test_an_unreadable_file_is_named(download: Path, doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    plain_open = Path.open

    def refusing(path: Path, *rest: Any) -> Any:
        if path.name == "vocab.txt":  # root may read all: the refusal is made here
            raise PermissionError(13, "Permission denied")
        return plain_open(path, *rest)

    monkeypatch.setattr(Path, "open", refusing)
    found = doctor(download)["files"]["vocab.txt"]
    assert (found["state"], found["detail"]) == ("unreadable", "Permission denied")


def test_names_that_steer_terminals_or_aren_t_utf8_are_escaped(
    download: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    folder = os.fsencode(download)
    for name in (b"\x1b]0;owned\x07\x1b[2J", b"\xff\xfe.txt", b"line\nbreak", "\u202egpj.exe".encode(), b"n" * 255):
        with open(folder + b"/" + name, "wb") as stream:  # noqa: PTH123 - bytes
            stream.write(name)
    assert main(["data", "verify", str(download)]) == 0
    found, error = capfdbinary.readouterr()
    assert b"note: \\x1b]0;owned\\x07\\x1b[2J: foreign" in found
    assert b"note: \\xff\\xfe.txt: foreign" in found
    assert b"note: line\\nbreak: foreign" in found
    assert b"note: \\u202egpj.exe: foreign" in found
    assert b"n" * 255 in found
    assert not set((found + error).decode("ascii")) - set(map(chr, range(32, 127))) - {"\n"}
    assert main(["data", "verify", str(download), "--json"]) == 0
    paths = {one["path"] for one in json.loads(capfdbinary.readouterr()[0])["files"]}
    assert "\\xff\\xfe.txt" in paths


def test_large_files_that_match_no_listed_file_are_not_read(download: Path, doctor: Doctor) -> None:
    for name in ("one", "other"):
        with (download / name).open("wb") as stream:
            stream.truncate(1 << 42)  # two holes of 4 TB
    assert {one["state"] for one in doctor(download)["files"].values()} == {"foreign"}


def test_paths_of_any_depth_are_searched(download: Path, doctor: Doctor) -> None:
    here = os.open(download, os.O_RDONLY)
    try:
        for _ in range(30):  # 30 * 201 bytes: longer than the system's longest path
            os.mkdir("d" * 200, dir_fd=here)
            below = os.open("d" * 200, os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = below
    finally:
        os.close(here)
    found = doctor(download)
    assert found["ok"]
    (finding,) = found["files"].values()
    assert "File name too long" in finding["detail"]


def test_printable_text_is_left_as_it_is() -> None:
    assert printable("vocab (1).txt é 漢") == "vocab (1).txt é 漢"
    assert printable("\ud800\udcff\x9b") == "\\ud800\\xff\\x9b"
