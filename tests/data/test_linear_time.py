"""Reading takes linear time: four times the input takes about four times as long, whatever the input is."""

import time
from collections.abc import Callable, Iterable
from pathlib import Path

import h5py
import numpy as np
import pytest

from bertbench.data.formats import hdf5_layouts
from bertbench.data.formats.example import feature_bytes
from bertbench.data.formats.hdf5_layouts import read_hdf5
from bertbench.data.formats.tfrecord import read_tfrecord
from bertbench.data.text.corpus import text_articles, wiki_articles
from bertbench.data.text.vocabulary import SPECIAL_TOKENS, Vocabulary
from bertbench.data.text.words import chunks, words
from tests.data import published
from tests.data.published import SAMPLES

Reading = Callable[[Path, int], Callable[[], object]]
"""Write an input of a size to a path; return what reads it."""


def exhausted(items: Iterable[object]) -> int:
    return sum(1 for _ in items)


def text(content: Callable[[int], str], articles: Callable[[Path], Iterable[object]]) -> Reading:
    def written(path: Path, size: int) -> Callable[[], object]:
        path.write_text(content(size), encoding="utf-8")
        return lambda: exhausted(articles(path))

    return written


def wiki(paragraph: Callable[[int], str]) -> Reading:
    return text(lambda size: f"<doc>\nTitle\n{paragraph(size)}\n</doc>\n", wiki_articles)


def refused(path: Path) -> Iterable[object]:
    with pytest.raises(Exception, match="outside a complete <doc>"):
        list(wiki_articles(path))
    return ()


def split(path: Path) -> Iterable[object]:
    return [words(chunk) for chunk in chunks(path.read_text(encoding="utf-8"))]


def vocabulary(path: Path, size: int) -> Callable[[], object]:
    path.write_text("\n".join((*SPECIAL_TOKENS, *map(str, range(size)))))
    return lambda: Vocabulary.read(path)


def records(path: Path, size: int) -> Callable[[], object]:
    content = [published.example(published.features(SAMPLES[0]))] * size
    published.write_tfrecord(path, content)
    return lambda: exhausted(read_tfrecord(path))


def values_of_a_record(path: Path, size: int) -> Callable[[], object]:
    """One record, with a field for each of its values."""
    record = published.example({"input_ids": [1 << 60] * size}, packed=False)
    return lambda: feature_bytes(record)


def one_chunk(path: Path, size: int) -> Callable[[], object]:
    """Compressed rows in one chunk, which doesn't fit HDF5's own cache."""
    fields = {name: np.repeat(values, size, 0) for name, values in published.fixed_fields(SAMPLES[:1]).items()}
    fields["input_ids"] = np.pad(fields["input_ids"].astype("i8"), ((0, 0), (0, 500)))
    fields["input_mask"] = np.pad(fields["input_mask"], ((0, 0), (0, 500)))
    fields["segment_ids"] = np.pad(fields["segment_ids"], ((0, 0), (0, 500)))
    with h5py.File(path, "w") as file:
        for name, values in fields.items():
            file.create_dataset(name, data=values, compression="gzip", chunks=values.shape)
    return lambda: exhausted(read_hdf5(path))


READINGS: dict[str, tuple[Reading, int]] = {
    "lines": (text(lambda size: "Some words.\n" * size, text_articles), 40_000),
    "articles": (text(lambda size: "Some words.\n\n" * size, text_articles), 40_000),
    "one line": (text(lambda size: "Some words. " * size, text_articles), 2_000_000),
    "initials": (wiki(lambda size: "Mr. A " * size), 800),
    "full stops": (wiki(lambda size: "." * size + " A"), 200_000),
    "quotation marks": (wiki(lambda size: "." + '"' * size), 200_000),
    "opening brackets": (wiki(lambda size: ". [" * size), 30_000),
    "unclosed headers": (text(lambda size: "<doc\n" * size, refused), 4_000),
    "unclosed blocks": (text(lambda size: "<doc>\nA\n" * size, refused), 20_000),
    "closed blocks": (text(lambda size: "<doc>\nA\nB.\n</doc>\n" * size, wiki_articles), 10_000),
    "combining marks": (text(lambda size: "a" + "\u0315\u0300\u0316" * size, split), 1_000),
    "marks that decompose": (text(lambda size: "a" + "\u0f73" * size, split), 1_500),
    "capital sigmas": (text(lambda size: "\u03a3\u0300" * size, split), 10_000),
    "punctuation": (text(lambda size: "'." * size, split), 50_000),
    "a vocabulary": (vocabulary, 20_000),
    "records": (records, 1_000),
    "values of a record": (values_of_a_record, 20_000),
    "one compressed chunk": (one_chunk, 1_000),
}


@pytest.mark.parametrize("name", READINGS)
def test_four_times_the_input_takes_about_four_times_as_long(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hdf5_layouts, "BLOCK_ROWS", 100)  # so that few rows are many blocks
    reading, size = READINGS[name]
    seconds = []
    for factor in (1, 4):
        read = reading(tmp_path / f"{factor}.hdf5", factor * size)
        seconds.append(min(processor_seconds(read) for _ in range(3)))
    assert seconds[1] < 9 * seconds[0]  # 16 times if it were quadratic


def processor_seconds(read: Callable[[], object]) -> float:
    """The time of this process alone, so that a busy machine changes little."""
    began = time.process_time()
    read()
    return time.process_time() - began
