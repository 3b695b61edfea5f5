"""`data doctor` on small downloads: the same names, the sizes and sums of made-up contents; and on hostile folders."""

import hashlib
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bertbench.cli import main
from bertbench.common.printable import printable
from bertbench.data.mlcommons import checked, published, scan
from bertbench.data.mlcommons.md5_lists import parse_list
from bertbench.data.mlcommons.published import Published, part_name
from tests.data.published import framed

PARTS = 3
TEXT_LIST = "bert-preprocessed-wikipedia-dataset.md5"  # as the downloader names it
CONFIG = {
    "attention_probs_dropout_prob": 0.1,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 1024,
    "initializer_range": 0.02,
    "intermediate_size": 4096,
    "max_position_embeddings": 512,
    "num_attention_heads": 16,
    "num_hidden_layers": 24,
    "type_vocab_size": 2,
    "vocab_size": 30522,
}
CONTENTS = {
    "text/eval.txt": b"Held out.\n",
    f"text/{part_name(0)}": b"The first part.\n",
    f"text/{part_name(1)}": b"The second part, longer.\n",
    f"text/{part_name(2)}": b"A third.\n",
    "vocab.txt": b"[PAD]\n[UNK]\n",
    "bert_config.json": b"{}",
    "tf1_ckpt/model.ckpt-28252.index": b"index of TensorFlow 1",
    "tf1_ckpt/model.ckpt-28252.data-00000-of-00001": b"weights" * 9,
    "tf2_ckpt/model.ckpt-28252.index": b"index of 2",
    "tf2_ckpt/model.ckpt-28252.data-00000-of-00001": b"weights" * 4,
}
UNLISTED = {part_name(1), part_name(2)}  # as 494 of MLCommons' parts: no size, no MD5
TFRECORDS = {"eval_10k": 30, part_name(0): 40, part_name(1): None, part_name(2): None}


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """MLCommons' table, with three parts and small contents."""
    files = []
    for path, content in CONTENTS.items():
        folder, _, name = path.rpartition("/")
        group: Any = {"text": "text", "": "input", "tf1_ckpt": "tf1", "tf2_ckpt": "tf2"}[folder]
        known = (None, None) if name in UNLISTED else (len(content), md5(content))
        files.append(Published(name, group, True, *known))
    files += [Published(name, "tfrecord", False, size) for name, size in TFRECORDS.items()]
    monkeypatch.setattr(published, "FILES", tuple(files))
    monkeypatch.setattr(published, "ALL_TFRECORD_PARTS_BYTES", 40 + 50 + 60)


@pytest.fixture
def download(tmp_path: Path) -> Path:
    """A whole download with the list that the downloader leaves; the TensorFlow 2 checkpoint isn't there."""
    for path, content in CONTENTS.items():
        if not path.startswith("tf2"):
            (tmp_path / "D" / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "D" / path).write_bytes(content)
    lines = [f"{md5(CONTENTS[f'text/{name}'])}  ./{name}\n" for name in ("eval.txt", *map(part_name, range(PARTS)))]
    (tmp_path / "D" / "text" / TEXT_LIST).write_text("".join(lines))
    return tmp_path / "D"


Doctor = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def doctor(capsys: pytest.CaptureFixture[str]) -> Doctor:
    """The exit code, and the findings that are not `right`, by path."""

    def check(folder: Path, *words: str) -> tuple[int, dict[str, Any]]:
        code = main(["data", "doctor", str(folder), "--json", *words])
        content = json.loads(capsys.readouterr().out)
        assert content["ok"] == (code == 0)
        return code, {one["path"]: one for one in content["files"] if one["state"] != "right"}

    return check


def test_a_whole_download_is_right(download: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "doctor", str(download)]) == 0
    found = capsys.readouterr().out
    where = f"text in {download}/text, vocab.txt in {download}"
    assert found.endswith(f"{download}: everything needed is there and right; {where}\n")
    assert "4 of 4 right" in found
    assert "To download" not in found


def test_the_published_configuration_is_right_by_the_published_sum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, doctor: Doctor
) -> None:
    monkeypatch.undo()  # the real table
    (tmp_path / "bert_config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
    code, findings = doctor(tmp_path)
    assert code == 1
    assert "bert_config.json" not in findings
    missing = [path for path, one in findings.items() if one["state"] == "missing"]
    assert missing == ["eval.txt", *map(part_name, range(500)), "vocab.txt", *(f"model.ckpt-28252.{end}" for end in ("index", "data-00000-of-00001"))]  # fmt: skip  # noqa: E501


def test_the_real_table_is_what_mlcommons_publishes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    sums = {(one.group, one.name): (one.bytes, one.md5) for one in published.FILES}
    assert sums["text", "eval.txt"] == (32_851_144, "2a220f790517261547b1b45ed3ada07a")
    assert sums["text", "eval.md5"] == (330_000, "71a58382a68947e93e88aa0d42431b6c")
    assert sums["text", "part-00497-of-00500"] == (24_775_043, "66835aa75d4855f2e678e8f3d73812e9")
    assert sums["text", "part-00003-of-00500"] == (None, None)
    assert sums["input", "vocab.txt"] == (231_508, "64800d5d8528ce344256daf115d4965e")
    assert sums["tf1", "model.ckpt-28252.index"] == (17_371, "f97de3ae180eb8d479555c939d50d048")
    assert sums["tf1", "model.ckpt-28252.meta"] == (24_740_228, "dbd16c731e8a8113bc08eeed0326b8e7")
    data = "model.ckpt-28252.data-00000-of-00001"
    assert sums["tf1", data] == (4_034_713_312, "50797acd537880bfb5a7ade80d976129")
    assert sums["tf2", data] == (1_344_982_997, "77d642b721cf590c740c762c7f476e04")
    assert sums["dump", "enwiki-20200101-pages-articles-multistream.xml.bz2"] == (17_751_214_669, "00d47075e0f583fb7c0791fac1c57cb3")  # fmt: skip  # noqa: E501
    assert sums["tfrecord", "part-00499-of-00500"] == (898_392_312, None)
    assert sum(one.group == "text" and one.md5 is not None for one in published.FILES) == 8
    assert sum(one.group == "text" for one in published.FILES) == 502


def test_what_is_missing_comes_with_its_download(download: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(download / "text")
    assert main(["data", "doctor", str(download)]) == 1
    found = capsys.readouterr().out
    assert f"eval.txt to {part_name(2)}: 4 files missing" in found
    command = f"cd {download} && bash <(curl -s https://raw.githubusercontent.com/mlcommons/r2-downloader/refs/heads/main/mlc-r2-downloader.sh) "  # noqa: E501
    assert command + "https://training.mlcommons-storage.org/metadata/bert-preprocessed-wikipedia-dataset.uri" in found
    assert "bert-input-files.uri" not in found


def test_one_whole_checkpoint_is_enough(download: Path, doctor: Doctor) -> None:
    assert doctor(download) == (0, {})
    shutil.rmtree(download / "tf1_ckpt")
    code, findings = doctor(download)
    assert code == 1
    assert {one["group"] for one in findings.values()} == {"tf1"}
    for path, content in CONTENTS.items():
        if path.startswith("tf2"):
            (download / path).parent.mkdir(exist_ok=True)
            (download / path).write_bytes(content)
    assert doctor(download) == (0, {})
    (download / "tf2_ckpt" / "model.ckpt-28252.index").unlink()
    code, findings = doctor(download)
    assert {(one["group"], one["name"]) for one in findings.values()} == {("tf2", "model.ckpt-28252.index")}


@pytest.mark.parametrize(
    ("content", "state", "detail"),
    [
        (b"Held", "truncated", "found 4 bytes, expected 10"),
        (b"", "truncated", "found 0 bytes, expected 10"),
        (b"Held out.X", "altered", f"found MD5 {md5(b'Held out.X')}, expected {md5(b'Held out.' + chr(10).encode())}"),
        (b"Held out.\n\n", "altered", "found 11 bytes, expected 10"),
    ],
)
def test_truncated_and_altered_files_are_named(
    download: Path, doctor: Doctor, content: bytes, state: str, detail: str
) -> None:
    (download / "text" / "eval.txt").write_bytes(content)
    code, findings = doctor(download)
    assert code == 1
    (finding,) = findings.values()
    assert (finding["path"], finding["state"], finding["problem"]) == ("text/eval.txt", state, True)
    assert detail in finding["detail"]
    assert finding["bytes"] == len(content)
    assert finding["expected_bytes"] == 10


def test_a_part_is_right_only_by_a_list(download: Path, doctor: Doctor) -> None:
    (download / "text" / TEXT_LIST).unlink()
    code, findings = doctor(download)
    assert code == 1
    assert {one["path"]: one["state"] for one in findings.values()} == {
        f"text/{part_name(1)}": "unverified",
        f"text/{part_name(2)}": "unverified",
    }
    assert ".md5 list" in findings[f"text/{part_name(1)}"]["remedy"]


@pytest.mark.parametrize(
    "form",
    [
        "{md5}  {name}\r\n",
        "{md5} *./{name}\n",
        "MD5 ({name}) = {md5}\r\n",
        "{MD5}\t{name}\n",
    ],
)
def test_lists_of_every_form_are_read(download: Path, doctor: Doctor, form: str) -> None:
    lines = []
    for number in (1, 2):
        sum_ = md5(CONTENTS[f"text/{part_name(number)}"])
        lines.append(form.format(md5=sum_, MD5=sum_.upper(), name=part_name(number)))
    content = "# a comment\r\n" + "".join(lines)
    (download / "text" / TEXT_LIST).unlink()
    # one folder up, as the older list stood: names are relative to the text's folder
    (download / "bert_reference_results_text_md5.txt").write_bytes(b"\xef\xbb\xbf" + content.encode())
    assert doctor(download) == (0, {})
    (download / "text" / part_name(2)).write_bytes(b"Another.\n")
    code, findings = doctor(download)
    assert code == 1
    assert findings[f"text/{part_name(2)}"]["state"] == "altered"
    assert "bert_reference_results_text_md5.txt" in findings[f"text/{part_name(2)}"]["detail"]


def test_a_name_with_a_line_break_is_read_as_md5sum_escapes_it(tmp_path: Path) -> None:
    weird = tmp_path / "a\nb\\c"
    weird.write_bytes(b"content")
    listed = subprocess.run(["md5sum", weird.name], cwd=tmp_path, capture_output=True, check=True).stdout
    assert listed.startswith(b"\\")
    assert parse_list(listed, "list.md5").sums == {weird.name: md5(b"content")}


def test_a_list_that_contradicts_mlcommons_is_named(download: Path, doctor: Doctor) -> None:
    forged = md5(b"forged")
    (download / "text" / TEXT_LIST).write_text(f"{forged}  eval.txt\n{md5(b'1')}  {part_name(1)}\n")
    code, findings = doctor(download)
    assert code == 1
    assert forged in findings[f"text/{TEXT_LIST}"]["detail"]
    assert "text/eval.txt" not in findings  # right by the published sum, whatever a list says
    assert findings[f"text/{part_name(1)}"]["state"] == "altered"


def test_a_copy_is_named_and_does_no_harm(download: Path, doctor: Doctor) -> None:
    shutil.copy(download / "vocab.txt", download / "vocab (1).txt")
    code, findings = doctor(download)
    assert code == 0
    assert (findings["vocab (1).txt"]["state"], findings["vocab (1).txt"]["detail"]) == (
        "doubled",
        "the same content as vocab.txt",
    )


def test_a_copy_under_another_part_s_name_is_a_problem(download: Path, doctor: Doctor) -> None:
    shutil.copy(download / "text" / part_name(1), download / "text" / part_name(2))
    code, findings = doctor(download)
    assert code == 1
    assert f"it has the content of text/{part_name(1)}" in findings[f"text/{part_name(2)}"]["detail"]
    (download / "text" / TEXT_LIST).unlink()
    code, findings = doctor(download)
    assert code == 1
    assert [findings[f"text/{part_name(number)}"]["state"] for number in (1, 2)] == ["doubled", "doubled"]


def test_a_published_file_under_another_name_is_recognised(download: Path, doctor: Doctor) -> None:
    (download / "vocab.txt").rename(download / "vocab (1).txt")
    code, findings = doctor(download)
    assert code == 1
    assert list(findings) == ["vocab (1).txt"]
    assert (findings["vocab (1).txt"]["state"], findings["vocab (1).txt"]["remedy"]) == (
        "misnamed",
        "rename it to vocab.txt",
    )


def test_another_file_of_a_name_that_is_right_elsewhere_is_foreign(download: Path, doctor: Doctor) -> None:
    (download / "other").mkdir()
    (download / "other" / "vocab.txt").write_bytes(b"[PAD]\nother\n")
    shutil.copy(download / "vocab.txt", download / "text" / "vocab.txt")
    code, findings = doctor(download)
    assert code == 0
    states = {path: one["state"] for path, one in findings.items()}
    assert states == {"other/vocab.txt": "foreign", "text/vocab.txt": "doubled"}


def test_foreign_files_are_named_and_matter_only_where_the_text_s_pattern_takes_them(
    download: Path, doctor: Doctor
) -> None:
    (download / "notes.md").write_text("mine")
    (download / "License.txt").write_text("comes with the download")
    code, findings = doctor(download)
    assert code == 0
    assert {path: one["state"] for path, one in findings.items()} == {"notes.md": "foreign"}
    (download / "text" / "part-00500-of-00500").write_text("one too many")
    code, findings = doctor(download)
    assert code == 1
    assert "part-*-of-00500 would match it" in findings["text/part-00500-of-00500"]["detail"]


def test_tfrecords_are_told_from_text_by_content_and_checked_by_size(download: Path, doctor: Doctor) -> None:
    (download / "tfrecord").mkdir()
    contents = {part_name(0): 40, part_name(1): 50, part_name(2): 60, "eval_10k": 30}
    for name, size in contents.items():
        (download / "tfrecord" / name).write_bytes(framed(bytes([size] * (size - 16))))
    code, findings = doctor(download)
    assert code == 0
    assert {one["state"] for one in findings.values()} == {"unverified"}  # two parts; their total is right
    (download / "tfrecord" / "eval_10k").write_bytes(framed(b"x" * 13))
    (download / "tfrecord" / part_name(2)).write_bytes(framed(b"x" * 45))
    code, findings = doctor(download)
    assert code == 1
    assert findings["tfrecord/eval_10k"]["detail"] == "found 29 bytes, expected 30"
    assert findings["all 500 TFRecords"]["detail"] == "found 151 bytes in all, expected 150"
    assert struct.unpack("<Q", (download / "tfrecord" / "eval_10k").read_bytes()[:8]) == (13,)


@pytest.fixture
def traps(download: Path) -> dict[str, str]:
    """Things that would hang, never end or mislead, under published names; what is said of each."""
    text = download / "text"
    for name in (part_name(1), part_name(2), "eval.txt"):
        (text / name).unlink()
    (download / "vocab.txt").unlink()
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
    (download / "endless.md5").symlink_to("/dev/zero")
    os.mkfifo(download / "list.md5")
    return {
        f"text/{part_name(1)}": "is a FIFO",
        f"text/{part_name(2)}": "is a link to a device",
        "text/eval.txt": "is a folder",
        "vocab.txt": "is a link to nothing",
        "bert_config.json": "is a socket",
        "loop": "a link to a folder; not read",
        "endless.md5": "a link to a device; not read",
        "list.md5": "a FIFO; not read",
    }


def test_nothing_but_files_is_read_and_nothing_hangs(download: Path, traps: dict[str, str], doctor: Doctor) -> None:
    began = time.monotonic()
    code, findings = doctor(download)
    assert code == 1
    assert {path: one["detail"].split(",")[0] for path, one in findings.items()} == traps
    assert time.monotonic() - began < 30


def test_a_file_that_became_a_fifo_after_it_was_listed_doesn_t_hang(
    download: Path, doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = scan.scan(download)
    (download / "vocab.txt").unlink()
    os.mkfifo(download / "vocab.txt")
    monkeypatch.setattr("bertbench.data.mlcommons.inventory.scan", lambda folder: listed)
    code, findings = doctor(download)
    assert code == 1
    assert (findings["vocab.txt"]["state"], findings["vocab.txt"]["detail"]) == (
        "unreadable",
        "it changed since it was listed",
    )


def test_a_file_that_grows_while_it_is_read_is_not_called_right(
    download: Path, doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole_md5_of = scan.md5_of

    def growing(folder: Path, entry: scan.Entry, read: Callable[[int], None]) -> str:
        def read_and_grow(count: int) -> None:
            read(count)
            if entry.name == "vocab.txt":
                with (folder / entry.path).open("ab") as stream:
                    stream.write(b"more")

        return whole_md5_of(folder, entry, read_and_grow)

    monkeypatch.setattr("bertbench.data.mlcommons.doctor.md5_of", growing)
    code, findings = doctor(download)
    assert code == 1
    assert findings["vocab.txt"]["detail"] == "it changed while it was read"


def test_an_unreadable_file_is_named(download: Path, doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    plain_open = os.open

    def refusing(path: Any, flags: int, *rest: Any, **others: Any) -> int:
        if str(path).endswith("vocab.txt"):  # root may read all: the refusal is made here
            raise PermissionError(13, "Permission denied")
        return plain_open(path, flags, *rest, **others)

    monkeypatch.setattr(os, "open", refusing)
    code, findings = doctor(download)
    assert code == 1
    assert (findings["vocab.txt"]["state"], findings["vocab.txt"]["detail"]) == ("unreadable", "Permission denied")


def test_names_that_steer_terminals_or_are_no_utf8_are_escaped(
    download: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    folder = os.fsencode(download)
    for name in (b"\x1b]0;owned\x07\x1b[2J", b"\xff\xfe.txt", b"line\nbreak", "\u202egpj.exe".encode(), b"n" * 255):
        with open(folder + b"/" + name, "wb") as stream:  # noqa: PTH123 - bytes
            stream.write(name)
    assert main(["data", "doctor", str(download)]) == 0
    found, error = capfdbinary.readouterr()
    assert b"note: \\x1b]0;owned\\x07\\x1b[2J: foreign" in found
    assert b"note: \\xff\\xfe.txt: foreign" in found
    assert b"note: line\\nbreak: foreign" in found
    assert b"note: \\u202egpj.exe: foreign" in found
    assert b"n" * 255 in found
    assert not set((found + error).decode("ascii")) - set(map(chr, range(32, 127))) - {"\n"}
    assert main(["data", "doctor", str(download), "--json"]) == 0
    paths = {one["path"] for one in json.loads(capfdbinary.readouterr()[0])["files"]}
    assert "\\xff\\xfe.txt" in paths


def test_a_terminal_without_unicode_gets_escapes(download: Path) -> None:
    (download / "漢.txt").write_text("foreign")
    code = "import sys; from bertbench.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "data", "doctor", str(download)]
    done = subprocess.run(command, env={**os.environ, "PYTHONIOENCODING": "ascii"}, capture_output=True, check=False)
    assert b"note: \\u6f22.txt: foreign" in done.stdout
    assert b"Traceback" not in done.stderr


def test_large_files_that_are_nobody_s_copy_are_not_read(download: Path, doctor: Doctor) -> None:
    for name in ("one", "other"):
        with (download / name).open("wb") as stream:
            stream.truncate(1 << 42)  # two holes of 4 TB
    code, findings = doctor(download)
    assert code == 0
    assert {one["state"] for one in findings.values()} == {"foreign"}


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
    code, findings = doctor(download)
    assert code == 0
    (finding,) = findings.values()
    assert "File name too long" in finding["detail"]


def test_a_mistake_is_one_line_and_exit_code_2(
    tmp_path: Path, download: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*words: str) -> str:
        assert main(["data", "doctor", *words]) == 2
        found, error = capsys.readouterr()
        assert (found, error.count("\n")) == ("", 1)
        return error

    assert "found nothing there, expected the folder of a download" in refused(str(tmp_path / "none\x1b"))
    assert "found something else there" in refused(str(download / "vocab.txt"))
    assert "found another file there, expected none" in refused(str(download), "--state", str(download / "vocab.txt"))
    assert "found another file there, expected none" in refused(str(download), "--state", "/dev/null")
    monkeypatch.setattr(scan, "MAX_ENTRIES", 5)
    assert "found over 5 files" in refused(str(download))


def state_of(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / ".bertbench-doctor.json").read_text())
    return content


@pytest.fixture
def settled(download: Path) -> Path:
    """The download, some clock ticks after its last change."""
    time.sleep(checked._CLOCK_TICK_NS / 1e9 + 0.03)
    return download


def check_json(folder: Path, capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    main(["data", "doctor", str(folder), "--json", *words])
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
    assert main(["data", "doctor", str(settled)]) == 0
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
    command = [sys.executable, "-c", code, "data", "doctor", str(tmp_path), "--json"]
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


def test_printable_text_is_left_as_it_is() -> None:
    assert printable("vocab (1).txt é 漢") == "vocab (1).txt é 漢"
    assert printable("\ud800\udcff\x9b") == "\\ud800\\xff\\x9b"
