"""Compressed files are refused by their content, in one line with the command that unpacks them."""

import bz2
import gzip
import io
import lzma
import subprocess
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from bertbench.common.compressed import unpacking
from bertbench.data.text.vocabulary import SPECIAL_TOKENS
from tests.conftest import Printed, write_json

CONTENT = b"One sentence.\nAnother one.\n"


def zipped(content: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("plain.txt", content)
    return stream.getvalue()


def tarred(content: bytes, mode: str = "w") -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode=mode) as archive:  # type: ignore[call-overload]
        member = tarfile.TarInfo("plain.txt")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    return stream.getvalue()


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
def test_the_command_unpacks_the_file_whatever_its_name_is(tmp_path: Path, compress: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "with 'quote.gz"
    path.write_bytes(compress(CONTENT))
    fault = unpacking(path)
    assert fault is not None
    command = fault.split("`")[1].replace("FILE", "unpacked")
    subprocess.run(["bash", "-c", command], cwd=tmp_path, check=True)
    assert (tmp_path / "unpacked").read_bytes() == CONTENT


@pytest.mark.parametrize(("name", "mode"), [("results.tar.bz2", "w:bz2"), ("results.tgz", "w:gz"), ("results", "w")])
def test_the_command_unpacks_an_archive(tmp_path: Path, name: str, mode: str) -> None:
    path = tmp_path / name
    path.write_bytes(tarred(CONTENT, mode))
    fault = unpacking(path)
    assert fault is not None
    subprocess.run(["bash", "-c", fault.split("`")[1]], cwd=tmp_path, check=True)
    assert (tmp_path / "plain.txt").read_bytes() == CONTENT


def test_other_files_are_not_compressed(tmp_path: Path) -> None:
    path = tmp_path / "plain.gz"
    for content in (CONTENT, b"", b"BZh is no compression", b"\x89HDF\r\n\x1a\n"):
        path.write_bytes(content)
        assert unpacking(path) is None
    assert unpacking(tmp_path / "none") is None
    assert unpacking(tmp_path) is None


BERT = {
    "vocab_size": 9, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8,
    "max_position_embeddings": 8, "type_vocab_size": 2,
}  # fmt: skip
COMPRESSED = {
    "gzip": gzip.compress, "bzip2": bz2.compress, "xz": lzma.compress, "zip": zipped,
    "zstd": lambda content: b"\x28\xb5\x2f\xfd" + content,
}  # fmt: skip
READERS = {
    "text": "data prepare --text FILE --out OUT",
    "wiki": "data prepare --wiki FILE --out OUT",
    "text of MLPerf": "data prepare --recipe mlperf --text FILE --vocab VOCAB --out OUT",
    "vocabulary": "data convert-hdf5 NONE --vocab FILE --out OUT",
    "HDF5": "data convert-hdf5 FILE --vocab-size 9 --out OUT",
    "TFRecord": "data convert-tfrecord FILE --vocab-size 9 --out OUT",
    "questions": "finetune squad --dev FILE --score NONE",
    "weights": "checkpoint show FILE",
    "Hugging Face weights": "checkpoint import --from-hf FILE --out OUT",
    "configuration": "checkpoint import --from-tf NONE --config FILE --out OUT",
}


@pytest.mark.parametrize(
    ("of", "program"),
    [*((of, "bzip2") for of in READERS), *(("text", program) for program in COMPRESSED if program != "bzip2")],
)
def test_every_reader_of_a_user_s_file_names_the_compression(
    tmp_path: Path, printed: Printed, of: str, program: str
) -> None:
    path, vocab = tmp_path / "file", tmp_path / "vocab.txt"
    path.write_bytes(COMPRESSED[program](CONTENT))
    vocab.write_text("\n".join(SPECIAL_TOKENS))
    write_json(tmp_path / "config.json", BERT)
    places = {"FILE": path, "VOCAB": vocab, "OUT": tmp_path / "out", "NONE": tmp_path / "none"}
    said = printed(*[places.get(word, word) for word in READERS[of].split()], code=2)
    (line,) = [line for line in said.splitlines() if line.startswith("bertbench: ")]
    assert f"{path}: is " in line
    assert "; unpack it with `" in line
    assert not (tmp_path / "out").exists()


def test_an_archive_of_texts_is_no_text(tmp_path: Path, printed: Printed) -> None:
    (tmp_path / "text.tar").write_bytes(tarred(CONTENT))
    said = printed("data", "prepare", "--text", tmp_path / "text.tar", "--out", tmp_path / "out", code=2)
    assert f"tar -xf {tmp_path / 'text.tar'}" in said
