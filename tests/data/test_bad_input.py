"""Faults of published files: each is one error, and leaves no file."""

import gzip
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from bertbench.data.formats.convert import Conversion, convert_samples
from tests.conftest import Printed
from tests.damage import cut, flip
from tests.data import published
from tests.data.datasets import QUIET
from tests.data.published import SAMPLES, VOCAB_SIZE, Fields
from tests.protobuf import masked_crc
from tests.tiny import Sample

Damage = Callable[[Path], list[Path]]
"""Writes bad input into a folder, and says what to convert."""


def hdf5(fields: Fields) -> Damage:
    return lambda folder: [published.write_hdf5(folder / "part.hdf5", fields)]


def fixed(name: str, row: int, place: int, value: int) -> Damage:
    """One changed value in a fixed file."""
    fields = published.fixed_fields()
    fields[name][row, place] = value
    return hdf5(fields)


def packed(name: str, row: int, values: list[int]) -> Damage:
    """One changed row in a packed file."""
    fields = published.packed_fields()
    fields[name][row] = np.array(values, fields[name][row].dtype)
    return hdf5(fields)


def unsigned(name: str, row: int, values: list[int]) -> Damage:
    """One changed row in a packed file whose integers are unsigned and have 64 bits."""
    fields = {key: [np.array(each, "u8") for each in rows] for key, rows in published.packed_fields().items()}
    fields[name][row] = np.array(values, "u8")
    return hdf5(fields)


def damaged(good: Damage, change: Callable[[Path], object]) -> Damage:
    """A file that is changed after it was written."""

    def write(folder: Path) -> list[Path]:
        (path,) = good(folder)
        change(path)
        return [path]

    return write


def twice(folder: Path) -> list[Path]:
    path = published.write_hdf5(folder / "part_0.hdf5", published.fixed_fields())
    return [path, Path(shutil.copy(path, folder / "part_1.hdf5"))]


def flipped(folder: Path) -> list[Path]:
    """A compressed file with damaged chunks."""
    random = np.random.default_rng(3)
    fields = published.fixed_fields([SAMPLES[0]] * 700)
    fields["input_ids"][:, 1:4] = random.integers(0, VOCAB_SIZE, (700, 3))
    path = published.write_hdf5(folder / "part.hdf5", fields, "gzip")
    with h5py.File(path) as file:
        chunk = file["input_ids"].id.get_chunk_info(0)
    content = bytearray(path.read_bytes())
    content[chunk.byte_offset + 10 : chunk.byte_offset + 30] = bytes(20)
    path.write_bytes(content)
    return [path]


def ours(folder: Path) -> list[Path]:
    convert_samples(folder / "made", Conversion("hdf5", (twice(folder)[0],), "train", VOCAB_SIZE, 3), QUIET)
    return [folder / "made" / "train"]


def empty_folder(folder: Path) -> list[Path]:
    (folder / "empty").mkdir()
    return [folder / "empty"]


def linked(name: str, target: str) -> Damage:
    """A folder with good samples and a link."""

    def write(folder: Path) -> list[Path]:
        published.write_hdf5(folder / "part_0.hdf5", published.fixed_fields())
        (folder / name).symlink_to(target)
        return [folder]

    return write


def piped(folder: Path) -> list[Path]:
    os.mkfifo(folder / "part.hdf5")
    return [folder / "part.hdf5"]


def unwritten(folder: Path) -> list[Path]:
    """A small file that claims a million rows, without values."""
    with h5py.File(folder / "part.hdf5", "w") as file:
        for name, values in FIXED.items():
            file.create_dataset(name, (1_000_000, *values.shape[1:]), values.dtype, fillvalue=1)
    return [folder / "part.hdf5"]


def filtered(folder: Path) -> list[Path]:
    """Values compressed by a filter that isn't installed."""
    path = published.write_hdf5(folder / "part.hdf5", {**FIXED, "input_ids": FIXED["input_ids"][:0]})
    with h5py.File(path, "r+") as file:
        del file["input_ids"]
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_chunk(FIXED["input_ids"].shape)
        properties.set_filter(32015, h5py.h5z.FLAG_OPTIONAL)
        space = h5py.h5s.create_simple(FIXED["input_ids"].shape)
        field = h5py.h5d.create(file.id, b"input_ids", h5py.h5t.NATIVE_INT16, space, properties)
        field.write_direct_chunk((0, 0), bytes(30))
    return [path]


FIXED, VARLENGTH = published.fixed_fields(), published.varlength_fields()
NO_PREDICTIONS = {name: np.zeros_like(FIXED[name]) for name in ("masked_lm_positions", "masked_lm_ids")}
EYE = np.eye(3, dtype="i1")
WRAPPED = FIXED["input_ids"].astype("i4") + 65536 * FIXED["input_mask"].astype("i4")
BAD_HDF5: dict[str, tuple[Damage, str]] = {
    "nothing there": (lambda folder: [folder / "none.hdf5"], "none.hdf5: cannot be read"),
    "an empty folder": (empty_folder, "found no hdf5 files in this folder"),
    "a truncated file": (damaged(hdf5(FIXED), lambda path: cut(path, -900)), "cannot be read as HDF5"),
    "damaged chunks": (flipped, "cannot be read as HDF5"),
    "the same file twice": (twice, "part_1.hdf5: found the content of"),
    "our own shards": (ours, "found no field input_mask, but input_ids, masked_lm_ids"),
    "no rows": (hdf5({name: values[:0] for name, values in FIXED.items()}), "found no samples"),
    "a missing mask": (
        hdf5({name: values for name, values in FIXED.items() if name != "input_mask"}), "found no field input_mask",
    ),
    "a damaged name": (
        damaged(
            hdf5(FIXED), lambda path: path.write_bytes(path.read_bytes().replace(b"segment_ids", b"segment_\xffds")),
        ),
        "found no field segment_ids, but b'segment_\\xffds', input_ids",
    ),
    "mixed layouts": (
        hdf5({**VARLENGTH, "masked_lm_ids": FIXED["masked_lm_ids"]}),
        "row 0: found 1 masked_lm_positions but 3 masked_lm_ids, expected the same number",
    ),
    "unequal row counts": (
        hdf5({**FIXED, "next_sentence_labels": np.zeros(2, "i1")}),
        "found 3 rows of input_ids but 2 of next_sentence_labels",
    ),
    "a mask with a hole": (fixed("input_mask", 1, 3, 0), "row 1: found an input_mask that isn't ones, then zeros"),
    "a mask padded with -1": (
        hdf5({**FIXED, "input_mask": 2 * FIXED["input_mask"] - 1}), "row 0: found -1 in input_mask, expected 0 or 1",
    ),
    "a token in the padding": (fixed("input_ids", 2, 10, 7), "row 2: found a token where input_mask isn't 1"),
    "a position 0 among the counted": (
        fixed("masked_lm_positions", 1, 0, 0), "row 1: found masked_lm_positions with a 0 before the last position",
    ),
    "a label without position": (fixed("masked_lm_ids", 2, 2, 9), "row 2: found a label in masked_lm_ids"),
    "no predictions": (hdf5({**FIXED, **NO_PREDICTIONS}), "row 0: found 0 masked tokens, expected 1 to 127"),
    "a position in the padding": (
        fixed("masked_lm_positions", 0, 0, 8), "row 0: found masked position 8, expected at least 0 and less",
    ),
    "an id too large": (fixed("input_ids", 1, 2, VOCAB_SIZE), "row 1: found token id 53, expected 0 to 52"),
    "an id that wraps round in 16 bits": (
        hdf5({**FIXED, "input_ids": WRAPPED}), "row 0: found token id 65537, expected 0 to 52",
    ),
    "a third next-sentence label": (
        hdf5({**FIXED, "next_sentence_labels": np.array([0, 1, 2], "i1")}),
        "row 2: found next-sentence label 2, expected 0 or 1",
    ),
    "a sample longer than the index holds": (
        hdf5(published.varlength_fields([Sample([1] * 513, [0] * 513, [1], [2], 0)])),
        "row 0: found 513 tokens, expected 1 to 512",
    ),
    "lengths that don't add up": (
        packed("packed_input_len", 0, [5, 6]), "row 0: found 12 input_ids, expected 11, the sum of its packed lengths",
    ),
    "four sequences in a row": (
        packed("packed_input_len", 1, [1, 1, 1, 1]), "row 1: found 4 sequences in packed_input_len, expected 1 to 3",
    ),
    "a sequence without length": (packed("packed_input_len", 0, [12, 0]), "row 0: found a packed_input_len below 1"),
    "a position in the sequence before": (
        packed("masked_lm_positions", 0, [3, 4, 10]),
        "row 0: found masked position -1, expected at least 0 and less than the sample's length",
    ),
    "unsigned positions before the sequence": (
        unsigned("masked_lm_positions", 0, [1, 0, 10]), "row 0: found masked position -5, expected at least 0",
    ),
    "lengths whose sum wraps round": (
        unsigned("packed_input_len", 0, [5 + (1 << 63), 7 + (1 << 63)]), "row 0: found a packed_input_len above 12",
    ),
    "another vendor's packed rows": (
        hdf5({**FIXED, "next_sentence_labels": EYE, "next_sentence_positions": EYE}),
        "row 0: found 3 next_sentence_labels but no packed_input_len",
    ),
    "rows that are too wide": (
        hdf5({name: values if values.ndim == 1 else np.repeat(values, 50, 1) for name, values in FIXED.items()}),
        "input_ids: found rows of 550 values, expected at most 512",
    ),
    "values that aren't there": (unwritten, "input_ids: found fewer values than its shape"),
    "a filter that isn't installed": (filtered, "HDF5's filter 32015 (Zstandard), which isn't installed"),
    "a link to nothing": (linked("part_1.hdf5", "gone.hdf5"), "part_1.hdf5: is a link to"),
    "a link to itself": (linked("part_1.hdf5", "part_1.hdf5"), "part_1.hdf5: cannot be read (Too many levels"),
    "a pipe": (piped, "part.hdf5: found a pipe or a device"),
    "a masked start of sequence": (
        packed("masked_lm_positions", 0, [3, 5, 10]), "row 0: found a masked position at the start of a sequence",
    ),
}  # fmt: skip


def records(*changes: dict[str, list[int] | list[float] | None], compressed: bool = False) -> Damage:
    """A TFRecord file with these changes to its first records; None removes a feature."""

    def write(folder: Path) -> list[Path]:
        contents = [published.features(sample) for sample in SAMPLES]
        for content, change in zip(contents, changes, strict=False):
            for name, values in change.items():
                if values is None:
                    del content[name]
                else:
                    content[name] = values
        return [published.write_tfrecord(folder / "part-0", [*map(published.example, contents)], compressed)]

    return write


def raw(content: bytes) -> Damage:
    """A TFRecord file with one record that holds these bytes."""
    return lambda folder: [published.write_tfrecord(folder / "part-0", [content])]


def claimed(length: int) -> Damage:
    """A TFRecord file whose first record claims a length."""

    def write(folder: Path) -> list[Path]:
        header = struct.pack("<Q", length)
        (folder / "part-0").write_bytes(header + masked_crc(header) + bytes(40))
        return [folder / "part-0"]

    return write


ENTRY = published.example({"input_ids": [5]})
BAD_TFRECORD: dict[str, tuple[Damage, str]] = {
    "a changed byte": (damaged(records(), lambda path: flip(path, 40)), "record 0: found checksum"),
    "a cut file": (damaged(records(), lambda path: cut(path, -7)), "record 2: found"),
    "a cut compressed file": (damaged(records(compressed=True), lambda path: cut(path, -30)), "cannot be read after"),
    "an empty TFRecord file": (damaged(records(), lambda path: cut(path, 0)), "found no samples"),
    "another kind of file": (
        damaged(records(), lambda path: path.write_text("this is no HDF5 file")), "or not a TFRecord file",
    ),
    "a missing feature": (records({}, {"segment_ids": None}), "record 1: found no feature segment_ids, but input_ids"),
    "floats for ids": (records({}, {"input_ids": [0.5]}), "record 1: found floats in input_ids, expected integers"),
    "no predictions": (
        records({}, {"masked_lm_positions": [0, 0], "masked_lm_ids": [0, 0]}),
        "record 1: found 0 masked tokens, expected 1 to 127",
    ),
    "a mask padded with -1": (
        records({}, {"input_mask": [1] * 7 + [-1] * 4}), "record 1: found -1 in input_mask, expected 0 or 1",
    ),
    "predictions padded with -1": (
        records({"masked_lm_positions": [3, -1], "masked_lm_ids": [30, -1]}),
        "record 0: found masked position -1, expected at least 0",
    ),
    "two labels": (records({"next_sentence_labels": [1, 0]}), "found 2 next_sentence_labels but no packed_input_len"),
    "no Example": (raw(b"\xff\xff"), "record 0: found an invalid tf.train.Example (a number that is cut short)"),
    "a cut Example": (raw(ENTRY[:-3]), "record 0: found an invalid tf.train.Example (a field that is longer"),
    "an endless length": (claimed(1 << 40), "record 0: found a record of 1,099,511,627,776 bytes, expected at most"),
    "an endless length, compressed": (
        damaged(claimed(1 << 40), lambda path: path.write_bytes(gzip.compress(path.read_bytes()))),
        "record 0: found a record of 1,099,511,627,776 bytes, expected at most",
    ),
    "another message": (raw(b"\x10\x05"), "record 0: found an invalid tf.train.Example (field 2 of wire type 0"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("of", "damage", "expected"),
    [
        pytest.param(of, damage, expected, id=f"{of}: {name}")
        for of, cases in (("hdf5", BAD_HDF5), ("tfrecord", BAD_TFRECORD))
        for name, (damage, expected) in cases.items()
    ],
)
def test_bad_input_is_one_error_and_leaves_no_file(
    tmp_path: Path, printed: Printed, of: str, damage: Damage, expected: str
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    words = [f"convert-{of}", *damage(source), "--vocab-size", VOCAB_SIZE, "--out", tmp_path / "out"]
    found = printed("data", *words, code=2)
    (line,) = [line for line in found.splitlines() if line.startswith("bertbench: ")]
    assert expected in line
    assert str(source) in line
    assert [*tmp_path.iterdir()] == [source]
