"""`data verify` on small downloads: the same names, the sizes and sums of made-up contents."""

import json
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from bertbench.cli import main
from bertbench.data.mlcommons import published, scan
from bertbench.data.mlcommons.md5_lists import parse_list
from bertbench.data.mlcommons.published import part_name
from tests.data.doctor.small_download import CONFIG, CONTENTS, TEXT_LIST, Doctor, md5
from tests.data.published import framed


def test_a_whole_download_is_right(download: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "verify", str(download)]) == 0
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
    assert main(["data", "verify", str(download)]) == 1
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


def test_a_mistake_is_one_line_and_exit_code_2(
    tmp_path: Path, download: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*words: str) -> str:
        assert main(["data", "verify", *words]) == 2
        found, error = capsys.readouterr()
        assert (found, error.count("\n")) == ("", 1)
        return error

    assert "found nothing there, expected a dataset's folder or the folder of a download" in refused(
        str(tmp_path / "none\x1b")
    )
    assert "found something else there" in refused(str(download / "vocab.txt"))
    assert "found another file there, expected none" in refused(str(download), "--state", str(download / "vocab.txt"))
    assert "found another file there, expected none" in refused(str(download), "--state", "/dev/null")
    monkeypatch.setattr(scan, "MAX_ENTRIES", 5)
    assert "found over 5 files" in refused(str(download))
