"""`data export --size-only` against the writer of tests/data/published.py, and sizes worked out by hand."""

from pathlib import Path
from random import Random

import pytest

from bertbench.cli.main import main
from bertbench.data.formats.tfrecord import read_tfrecord, record_bytes
from bertbench.data.mlcommons.published import part_name
from bertbench.data.mlcommons.reference_tfrecords import (
    ReferenceFile,
    published_bytes,
    reference_files,
    size_differences,
)
from bertbench.data.store.manifest import Manifest
from bertbench.data.text import mlperf
from bertbench.data.text.mlperf import MlperfRecipe
from tests.conftest import Answer, Captured, Printed
from tests.data import published
from tests.data.datasets import made, read
from tests.data.published import SAMPLES
from tests.tiny import Sample, columns_of, samples_of, tiny_text

# ids, positions and lengths on both sides of the places where a varint grows: 127 | 128 and 16383 | 16384
EDGES = [
    Sample([127, 128, 16383, 16384, 30521], [0, 0, 1, 1, 1], [1, 2, 4], [127, 128, 30521], 0),
    Sample([128] * 512, [0] * 200 + [1] * 312, [*range(100, 176)], [16384] * 76, 1),
    Sample([16384] * 512, [1] * 512, [127, 128, 511], [1, 16383, 16384], 0),
]


@pytest.fixture
def mlperf_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published, "WIDTH", 512)
    monkeypatch.setattr(published, "PREDICTIONS", 76)


@pytest.mark.usefixtures("mlperf_width")
def test_sizes_are_those_of_an_independent_writer_s_records(tmp_path: Path) -> None:
    samples = [*SAMPLES, *EDGES]
    written = [published.example(published.features(sample)) for sample in samples]
    assert record_bytes(columns_of(samples)).tolist() == [16 + len(record) for record in written]
    (read_back,) = read_tfrecord(published.write_tfrecord(tmp_path / "theirs", written))
    assert samples_of(read_back.columns) == samples


def prepared(folder: Path, vocab: Path, recipe: MlperfRecipe, *names: str) -> Path:
    """A dataset made of small texts of these names."""
    texts = []
    for number, name in enumerate(names):
        texts.append(folder / str(number) / name)
        texts[-1].parent.mkdir(parents=True)
        texts[-1].write_text(tiny_text(Random(number), articles=4 + 3 * number))
    made(folder / "data", texts, vocab, recipe)
    return folder / "data"


@pytest.mark.usefixtures("mlperf_width")
def test_a_text_becomes_one_file_whatever_its_shards(
    tmp_path: Path, vocab: Path, monkeypatch: pytest.MonkeyPatch, answer: Answer, printed: Printed
) -> None:
    monkeypatch.setattr(mlperf, "SHARD_SAMPLES", 13)
    data = prepared(tmp_path, vocab, MlperfRecipe(dupe_factor=2), "eval.txt", "part-00007-of-00500")
    shards = Manifest.read(data).splits()["train"].shards
    first = sum(shard.samples for shard in shards if shard.name.startswith("part_00000_"))
    samples, sizes = read(data), []
    assert len(shards) > 2
    (tmp_path / "theirs").mkdir()
    for name, of_text in {"eval_intermediate": samples[:first], "part-00007-of-00500": samples[first:]}.items():
        written = [published.example(published.features(sample)) for sample in of_text]
        size = published.write_tfrecord(tmp_path / "theirs" / name, written).stat().st_size
        sizes.append((name, len(of_text), size))
    files = answer("data", "export", data, "--layout", "tfrecord", "--size-only")["files"]
    assert [(file["name"], file["samples"], file["bytes"]) for file in files] == sizes
    words = ["--from-tfrecord", tmp_path / "theirs", "--vocab", vocab, "--out", tmp_path / "back"]
    printed("data", "prepare", *words)
    printed("data", "verify", data, "--against", tmp_path / "back")


def test_the_picked_evaluation_samples_are_named_as_the_reference_names_them(tmp_path: Path, vocab: Path) -> None:
    data = prepared(tmp_path, vocab, MlperfRecipe(dupe_factor=2, select_eval=7), "eval.txt")
    manifest = Manifest.read(data)
    assert [name for name, _ in reference_files(manifest, "eval")] == ["eval_7"]
    manifest.request["recipe"]["select_eval"] = 10_000
    assert [name for name, _ in reference_files(manifest, "eval")] == ["eval_10k"]


def test_a_size_unlike_the_published_one_is_an_error_that_gives_both(
    tmp_path: Path, vocab: Path, capsys: Captured, printed: Printed
) -> None:
    data = prepared(tmp_path, vocab, MlperfRecipe(), "eval.txt")
    assert main(["data", "export", str(data), "--layout", "tfrecord", "--size-only"]) == 1
    found, error = capsys.readouterr()
    assert "MLCommons publishes 843,343,183" in error
    assert "as MLCommons publishes" not in found
    printed("data", "export", data, "--layout", "varlength", "--size-only", code=2)
    other = prepared(tmp_path / "other", vocab, MlperfRecipe(seed=1), "eval.txt")  # made otherwise: no size to compare
    printed("data", "export", other, "--layout", "tfrecord", "--size-only")


def test_all_500_parts_are_compared_by_their_total(tmp_path: Path, vocab: Path) -> None:
    manifest = Manifest.read(prepared(tmp_path, vocab, MlperfRecipe(), "part-00000-of-00500"))
    sizes = [514_241_279, *[1] * 498, 898_392_312]  # the two that are published one by one
    sizes[1] = 391_434_110_129 - sum(sizes) + 1
    files = [ReferenceFile(part_name(number), 1, size) for number, size in enumerate(sizes)]
    expected = published_bytes(manifest)
    assert size_differences(files, expected) == []
    smaller = [*files[:2], files[2]._replace(bytes=0), *files[3:]]
    (line,) = size_differences(smaller, expected)
    assert line.startswith("all parts: found 391,434,110,128 bytes, MLCommons publishes 391,434,110,129")
    assert size_differences(smaller[:-1], expected) == []  # not all
