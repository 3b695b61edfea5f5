"""`data verify` on small downloads: the same names, the sizes and sums of made-up contents."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from bertbench.data.mlcommons import listing
from bertbench.data.mlcommons.published import part_name
from tests.conftest import Printed
from tests.data.doctor.small_download import CONTENTS, TEXT_LIST, Doctor, md5

CONFIG = {
    "attention_probs_dropout_prob": 0.1, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 1024,
    "initializer_range": 0.02, "intermediate_size": 4096, "max_position_embeddings": 512, "num_attention_heads": 16,
    "num_hidden_layers": 24, "type_vocab_size": 2, "vocab_size": 30522,
}  # fmt: skip
EVAL, FIRST, SECOND = "text/eval.txt", f"text/{part_name(1)}", f"text/{part_name(2)}"
INDEX_2, DATA_2 = (path for path in CONTENTS if path.startswith("tf2"))


def test_a_whole_download_is_right(download: Path, printed: Printed) -> None:
    found = printed("data", "verify", download)
    assert found.endswith(f"{download}: all required files are present and correct\n")
    assert "4 of 4 correct" in found
    assert "To download" not in found


def test_the_published_configuration_is_right_by_the_published_sum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, doctor: Doctor
) -> None:
    monkeypatch.undo()  # the real table
    (tmp_path / "bert_config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
    found = doctor(tmp_path)["files"]
    checkpoint = ["model.ckpt-28252.index", "model.ckpt-28252.data-00000-of-00001"]
    assert list(found) == ["eval.txt", *map(part_name, range(500)), "vocab.txt", *checkpoint]
    assert {one["state"] for one in found.values()} == {"missing"}


def test_missing_files_are_listed_with_their_download(download: Path, printed: Printed) -> None:
    shutil.rmtree(download / "text")
    found = printed("data", "verify", download, code=1)
    assert f"eval.txt to {part_name(2)}: 4 files missing" in found
    command = f"cd {download} && bash <(curl -s https://raw.githubusercontent.com/mlcommons/r2-downloader/refs/heads/main/mlc-r2-downloader.sh) "  # noqa: E501
    assert command + "https://training.mlcommons-storage.org/metadata/bert-preprocessed-wikipedia-dataset.uri" in found
    assert "bert-input-files.uri" not in found


def writing(path: str, content: bytes) -> Callable[[Path], object]:
    def write(folder: Path) -> None:
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_bytes(content)

    return write


def second_checkpoint(folder: Path, *paths: str) -> None:
    shutil.rmtree(folder / "tf1_ckpt")
    for path in paths:
        writing(path, CONTENTS[path])(folder)


def copied_part_without_list(folder: Path) -> None:
    writing(SECOND, CONTENTS[FIRST])(folder)
    (folder / "text" / TEXT_LIST).unlink()


def contradicted(folder: Path) -> None:
    lines = f"{md5(b'forged')}  eval.txt\n{md5(b'1')}  {part_name(1)}\n{md5(CONTENTS[SECOND])}  {part_name(2)}\n"
    (folder / "text" / TEXT_LIST).write_text(lines)


def one_right_and_one_other(folder: Path) -> None:
    writing("other/vocab.txt", b"[PAD]\nother\n")(folder)
    writing("text/vocab.txt", CONTENTS["vocab.txt"])(folder)


FILES: dict[str, tuple[Callable[[Path], object], dict[str, tuple[str, bool, str]]]] = {
    "truncated": (
        writing(EVAL, b"Held"), {EVAL: ("truncated", True, "found 4 bytes, expected 10; run")}
    ),
    "empty": (writing(FIRST, b""), {FIRST: ("truncated", True, "expected more")}),
    "altered": (
        writing(EVAL, b"Held out.X"),
        {EVAL: ("altered", True, f"found MD5 {md5(b'Held out.X')}, expected {md5(CONTENTS[EVAL])}")},
    ),
    "longer": (
        writing(EVAL, b"Held out.\n\n"),
        {EVAL: ("altered", True, "found 11 bytes, expected 10")},
    ),
    "without list": (
        lambda folder: (folder / "text" / TEXT_LIST).unlink(),
        {FIRST: ("unverified", True, "copy the .md5 list"), SECOND: ("unverified", True, "no MD5 is published")},
    ),
    "a list against MLCommons": (
        contradicted,  # eval.txt is right by the published sum, whatever a list says
        {
            FIRST: ("altered", True, f"expected {md5(b'1')} (text/{TEXT_LIST})"),
        },
    ),
    "a copy": (
        writing("vocab (1).txt", CONTENTS["vocab.txt"]),
        {"vocab (1).txt": ("doubled", False, "the same content as vocab.txt; remove it")},
    ),
    "a copy of an unlisted part": (
        copied_part_without_list, dict.fromkeys((FIRST, SECOND), ("doubled", True, "the same content as")),
    ),
    "other files of a name": (
        one_right_and_one_other,
        {"other/vocab.txt": ("foreign", False, "vocab.txt is correct"), "text/vocab.txt": ("doubled", False, "remove")},
    ),
    "foreign": (
        writing("notes.md", b"mine"),
        {"notes.md": ("foreign", False, "no file that MLCommons publishes")},
    ),
    "a part too many": (
        writing("text/part-00500-of-00500", b"one too many"),
        {"text/part-00500-of-00500": ("foreign", True, "part-*-of-00500 would match it; move it elsewhere")},
    ),
    "no checkpoint": (
        second_checkpoint,
        {
            "model.ckpt-28252.index": ("missing", True, "download it"),
            "model.ckpt-28252.data-00000-of-00001": ("missing", True, "download it"),
        },
    ),
    "the other checkpoint": (lambda folder: second_checkpoint(folder, INDEX_2, DATA_2), {}),
    "half of the other": (
        lambda folder: second_checkpoint(folder, DATA_2), {"model.ckpt-28252.index": ("missing", True, "download it")},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_every_file_that_is_not_right_is_named_with_its_state(download: Path, doctor: Doctor, name: str) -> None:
    change, expected = FILES[name]
    change(download)
    found = doctor(download)
    assert {path: (one["state"], one["problem"]) for path, one in found["files"].items()} == {
        path: (state, problem) for path, (state, problem, _) in expected.items()
    }
    assert found["ok"] == (not any(problem for _, problem, _ in expected.values()))
    for path, (_, _, words) in expected.items():
        assert words in f"{found['files'][path]['detail']}; {found['files'][path]['remedy']}"


@pytest.mark.parametrize("form", ["{md5}  {name}\r\n", "{md5} *./{name}\n", "{MD5}\t{name}\n"])
def test_lists_of_every_form_are_read(download: Path, doctor: Doctor, form: str) -> None:
    content = "# a comment\r\n"
    for path in (FIRST, SECOND):
        sum_ = md5(CONTENTS[path])
        content += form.format(md5=sum_, MD5=sum_.upper(), name=path.removeprefix("text/"))
    (download / "text" / TEXT_LIST).unlink()
    # one folder up, as the older list stood: names are relative to the text's folder
    (download / "bert_reference_results_text_md5.txt").write_bytes(b"\xef\xbb\xbf" + content.encode())
    assert doctor(download)["ok"]
    (download / SECOND).write_bytes(b"Another.\n")
    assert "bert_reference_results_text_md5.txt" in doctor(download)["files"][SECOND]["detail"]


def test_a_mistake_is_one_line_and_exit_code_2(
    tmp_path: Path, download: Path, printed: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "MAX_ENTRIES", 5)
    for words, expected in (
        ([tmp_path / "none\x1b"], "found no folder, expected a dataset's folder or the folder of a download"),
        ([download / "vocab.txt"], "found no folder"),
        ([download], "found over 5 files"),
    ):
        error = printed("data", "verify", *words, code=2)
        assert error.count("\n") == 1
        assert expected in error
