"""`data verify` on a small download: published names, with the sizes and sums of made-up contents."""

import bz2
import gzip
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bertbench.data import download as downloads
from bertbench.data.download import PUBLISHED_FILES, TEXT_LIST, PublishedFile
from tests.conftest import Answer, Printed

INDEX = "model.ckpt-28252.index"
CONTENTS = {
    "vocab.txt": b"[PAD]\n[UNK]\n",
    f"tf1_ckpt/{INDEX}": b"index of TensorFlow 1",
    "text/eval.txt": b"Held out.\n",
    "text/part-00003-of-00500": b"The first part.\n",
}


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A complete download, with the list that the downloader writes; the part's size and sum aren't published."""
    published = []
    for path, content in CONTENTS.items():
        name = Path(path).name
        known = () if name.startswith("part") else (len(content), md5(content))
        published.append(PublishedFile(name, *known))
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(content)
    part = CONTENTS["text/part-00003-of-00500"]
    (tmp_path / "text" / TEXT_LIST).write_text(f"{md5(b'older')}  ./eval.txt\n{md5(part)}  ./part-00003-of-00500\n")
    monkeypatch.setattr(downloads, "PUBLISHED_FILES", tuple(published))
    return tmp_path


def test_the_list_has_every_file_that_a_run_needs_once() -> None:
    names = [file.name for file in PUBLISHED_FILES]
    assert len(set(names)) == len(names) == 505
    assert sum(name.startswith("part-") for name in names) == 500
    config = b'{\n  "attention_probs_dropout_prob": 0.1,\n  "hidden_act": "gelu",\n  "hidden_dropout_prob": 0.1,\n'
    config += b'  "hidden_size": 1024,\n  "initializer_range": 0.02,\n  "intermediate_size": 4096,\n'
    config += b'  "max_position_embeddings": 512,\n  "num_attention_heads": 16,\n  "num_hidden_layers": 24,\n'
    config += b'  "type_vocab_size": 2,\n  "vocab_size": 30522\n}\n'
    assert PublishedFile("bert_config.json", len(config), md5(config)) in PUBLISHED_FILES


def test_a_complete_download_is_right(folder: Path, printed: Printed, answer: Answer) -> None:
    (folder / "notes.md").write_text("not published")
    assert printed("data", "verify", folder) == "4 files right, 0 missing, 0 wrong\n"
    found = answer("data", "verify", folder)
    assert (found["ok"], found["missing"], found["wrong"]) == (True, [], [])
    assert found["right"] == [str(folder / path) for path in CONTENTS]


def test_missing_files_are_named(folder: Path, printed: Printed, answer: Answer) -> None:
    (folder / "vocab.txt").unlink()
    (folder / "text" / "eval.txt").rename(folder / "text" / "eval (1).txt")
    found = answer("data", "verify", folder, code=1)
    assert (found["ok"], found["missing"], found["wrong"]) == (False, ["vocab.txt", "eval.txt"], [])
    assert "missing: vocab.txt, eval.txt; download them again" in printed("data", "verify", folder, code=1)


def writing(path: str, content: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / path).write_bytes(content)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (writing("text/eval.txt", b"Held"), "text/eval.txt: found 4 bytes, expected 10; remove it"),
        (writing("text/eval.txt", b"Held out.X"), f"text/eval.txt: found MD5 {md5(b'Held out.X')}, expected"),
        (writing("text/part-00003-of-00500", b"Shorter"), f"part-00003-of-00500: found MD5 {md5(b'Shorter')}"),
        (
            lambda folder: (folder / "text" / TEXT_LIST).unlink(),
            "part-00003-of-00500: found no MD5 to compare with, expected one in a list",
        ),
    ],
)
def test_a_wrong_file_is_one_line_with_what_was_found_and_expected(
    folder: Path, printed: Printed, change: Callable[[Path], object], expected: str
) -> None:
    change(folder)
    found = printed("data", "verify", folder, code=1)
    assert found.startswith("3 files right, 0 missing, 1 wrong\n")
    assert expected in found


PART = "part-00003-of-00500"
SUM = md5(CONTENTS[f"text/{PART}"])


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("md5sums.txt", f"{SUM}  {PART}\n"),
        ("MD5SUMS", f"{SUM.upper()} *./results4/{PART}\r\n"),
        ("checksums", f"MD5 ({PART}) = {SUM}\n"),
        ("two.md5", f"{md5(b'older')}  {PART}\n{SUM}  {PART}\n"),
    ],
)
def test_a_list_of_sums_may_have_another_name_and_the_form_of_another_program(
    folder: Path, answer: Answer, name: str, line: str
) -> None:
    (folder / "text" / TEXT_LIST).unlink()
    (folder / name).write_text(line, newline="")
    assert answer("data", "verify", folder)["ok"]
    (folder / "text" / PART).write_bytes(b"The first part?\n")
    (wrong,) = answer("data", "verify", folder, code=1)["wrong"]
    assert SUM in wrong


def test_an_archive_that_may_hold_missing_files_is_named_with_its_command(
    folder: Path, answer: Answer, printed: Printed
) -> None:
    archive, alone = folder / "results_text.tar.bz2", folder / f"{PART}.gz"
    archive.write_bytes(bz2.compress(b"an archive"))
    alone.write_bytes(gzip.compress(b"a part"))
    assert answer("data", "verify", folder)["packed"] == []
    (folder / "text" / PART).unlink()
    packed = answer("data", "verify", folder, code=1)["packed"]
    assert sorted(packed) == [
        f"{alone}: is compressed by gzip; unpack it with `gzip -dc {alone} > FILE`",
        f"{archive}: is a tar archive; unpack it with `tar -xf {archive}`",
    ]
    assert f"not unpacked: {packed[0]}\n" in printed("data", "verify", folder, code=1)


def test_one_of_several_files_of_a_name_must_be_right(folder: Path, answer: Answer) -> None:
    (folder / "tf2_ckpt").mkdir()
    (folder / "tf2_ckpt" / INDEX).write_bytes(b"index of TensorFlow 2")
    assert str(folder / "tf1_ckpt" / INDEX) in answer("data", "verify", folder)["right"]
    (folder / "tf1_ckpt" / INDEX).unlink()
    (line,) = answer("data", "verify", folder, code=1)["wrong"]
    assert line.startswith(f"{folder / 'tf2_ckpt' / INDEX}: found MD5")


def test_what_isn_t_a_file_is_missing_and_nothing_hangs(folder: Path, answer: Answer) -> None:
    for path in ("vocab.txt", "text/eval.txt", f"tf1_ckpt/{INDEX}"):
        (folder / path).unlink()
    os.mkfifo(folder / "vocab.txt")
    (folder / "text" / "eval.txt").symlink_to("/dev/zero")
    (folder / "tf1_ckpt" / INDEX).mkdir()
    (folder / "loop").symlink_to(folder)
    assert answer("data", "verify", folder, code=1)["missing"] == ["vocab.txt", INDEX, "eval.txt"]


def test_links_to_nothing_are_named_as_links(folder: Path, answer: Answer) -> None:
    for path in ("vocab.txt", "text/part-00003-of-00500"):
        (folder / path).unlink()
        (folder / path).symlink_to("gone")
    (folder / "results4").symlink_to("unmounted")
    found = answer("data", "verify", folder, code=1)
    assert found["missing"] == []
    targets = [line.partition(": is a link to ")[2].partition(",")[0] for line in found["wrong"]]
    assert targets == [str(folder / "gone"), str(folder / "text" / "gone"), str(folder / "unmounted")]


def test_a_path_that_isn_t_a_folder_is_one_line_and_exit_code_2(folder: Path, printed: Printed) -> None:
    for path in (folder / "none", folder / "vocab.txt"):
        assert printed("data", "verify", path, code=2).count("\n") == 1
