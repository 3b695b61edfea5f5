import gzip
from collections.abc import Iterator, Sequence
from pathlib import Path

import h5py
import numpy as np
import pytest

from bertbench.common.protobuf import masked_crc32c
from bertbench.data.formats import hdf5_read, tfrecord
from bertbench.data.formats.example import Feature, feature_bytes, floats, integers
from bertbench.data.formats.hdf5_read import read_hdf5
from bertbench.data.formats.hdf5_write import WRITERS, Layout
from bertbench.data.formats.packing import pack
from bertbench.data.formats.rows import Block
from bertbench.data.formats.tfrecord import read_tfrecord
from tests.data import published
from tests.data.published import SAMPLES
from tests.tiny import Sample, columns_of


def samples_of(blocks: Iterator[Block] | Sequence[Block]) -> list[Sample]:
    """Back to single samples, for comparison."""
    found = []
    for columns in (block.columns for block in blocks):
        for row in range(len(columns)):
            one = columns.take(np.array([row]))
            found.append(
                Sample(
                    one.input_ids.tolist(),
                    one.segment_ids.tolist(),
                    one.masked_lm_positions.tolist(),
                    one.masked_lm_ids.tolist(),
                    int(one.next_sentence_labels[0]),
                )
            )
    return found


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_fixed_rows_lose_their_padding(tmp_path: Path, compression: str | None) -> None:
    path = published.write_hdf5(tmp_path / "part.hdf5", published.fixed_fields(), compression)
    assert samples_of(read_hdf5(path)) == SAMPLES


def test_rows_of_variable_length_are_samples(tmp_path: Path) -> None:
    path = published.write_hdf5(tmp_path / "part.hdf5", published.varlength_fields())
    assert samples_of(read_hdf5(path)) == SAMPLES


def test_predictions_padded_with_zeros_are_cut_in_rows_of_variable_length(tmp_path: Path) -> None:
    fields = published.varlength_fields()
    fields["masked_lm_positions"] = [np.append(row, [0, 0]) for row in fields["masked_lm_positions"]]
    fields["masked_lm_ids"] = [np.append(row, [0, 0]) for row in fields["masked_lm_ids"]]
    assert samples_of(read_hdf5(published.write_hdf5(tmp_path / "part.hdf5", fields))) == SAMPLES


def test_packed_rows_come_apart_with_positions_of_their_own(tmp_path: Path) -> None:
    path = published.write_hdf5(tmp_path / "part.hdf5", published.packed_fields())
    (block,) = read_hdf5(path)
    assert samples_of([block]) == SAMPLES
    assert block.rows.tolist() == [0, 0, 1]


def test_hdf5_is_read_in_bounded_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hdf5_read, "BLOCK_ROWS", 2)
    path = published.write_hdf5(tmp_path / "part.hdf5", published.fixed_fields())
    blocks = list(read_hdf5(path))
    assert [(len(block.columns), block.place.first) for block in blocks] == [(2, 0), (1, 2)]
    assert samples_of(blocks) == SAMPLES


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("packed", [False, True])
def test_tfrecords_are_read_plain_and_compressed(tmp_path: Path, compressed: bool, packed: bool) -> None:
    records = [published.example(published.features(sample), packed) for sample in SAMPLES]
    path = published.write_tfrecord(tmp_path / "part-00000-of-00001", records, compressed)
    assert path.read_bytes().startswith(b"\x1f\x8b") == compressed
    assert samples_of(read_tfrecord(path)) == SAMPLES


def test_tfrecords_are_read_in_bounded_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tfrecord, "BLOCK_ROWS", 2)
    records = [published.example(published.features(sample)) for sample in SAMPLES]
    blocks = list(read_tfrecord(published.write_tfrecord(tmp_path / "part", records)))
    assert [(len(block.columns), block.place.first) for block in blocks] == [(2, 0), (1, 2)]
    assert samples_of(blocks) == SAMPLES


def test_the_checksum_is_masked_crc32c() -> None:
    # RFC 3720, B.4: the CRC-32C of 32 zero bytes is 8a9136aa; rotated right by 15 bits it is 6d551522
    assert masked_crc32c(bytes(32)) == (0x6D551522 + 0xA282EAD8) % 2**32


def test_integers_are_decoded_from_varints_of_all_lengths() -> None:
    values = [[0, 127, 128], [], [300, -1, 2**63 - 1], [-(2**63)]]
    rows = integers([b"".join(map(published.varint, row)) for row in values])
    assert rows.values.tolist() == [0, 127, 128, 300, -1, 2**63 - 1, -(2**63)]
    assert rows.counts.tolist() == [3, 0, 3, 1]
    for damaged in (b"\x80", b"\xff" * 11 + b"\x01"):
        with pytest.raises(ValueError, match=r"missing|more than 10 bytes"):
            integers([b"\x01", damaged])


def test_an_example_gives_its_features_by_name_and_kind() -> None:
    found = feature_bytes(published.example({"a": [1, 300], "b": [0.5]}))
    assert {name: feature.kind for name, feature in found.items()} == {"a": Feature.INTEGERS, "b": Feature.FLOATS}
    assert integers([found["a"].values]).values.tolist() == [1, 300]
    assert floats([found["b"].values]).values.tolist() == [0.5]


@pytest.mark.parametrize(
    ("lengths", "rows"),
    [
        ([6, 3, 4, 5, 2], [[0], [1, 2], [3, 4]]),  # 6; 4 + 3; 5 + 2
        ([4, 2, 1, 3], [[0, 1, 2], [3]]),  # 4 + 2 + 1: two short ones go before the 3 that fits exactly
        ([2, 2, 2, 2], [[0, 1, 2], [3]]),  # never more than three, though a fourth fits not at all
        ([1, 1, 1, 1], [[0, 1, 2], [3]]),
        ([7, 7], [[0], [1]]),
        ([], []),
    ],
)
def test_rows_of_seven_tokens_are_packed_longest_first(lengths: list[int], rows: list[list[int]]) -> None:
    assert pack(np.array(lengths, np.int64), 7) == rows


def test_a_sample_that_fits_no_row_is_refused() -> None:
    with pytest.raises(ValueError, match="rows hold 1 to 7"):
        pack(np.array([8]), 7)


EXPECTED_FIELDS: dict[Layout, dict[str, str]] = {
    "fixed": {
        "input_ids": "<i2 (3, 512)", "input_mask": "|i1 (3, 512)", "segment_ids": "|i1 (3, 512)",
        "masked_lm_positions": "<i2 (3, 76)", "masked_lm_ids": "<i2 (3, 76)", "next_sentence_labels": "|i1 (3,)",
    },
    "varlength": {
        "input_ids": "rows of <i2 (3,)", "segment_ids": "rows of |i1 (3,)", "masked_lm_positions": "rows of <i2 (3,)",
        "masked_lm_ids": "rows of <i2 (3,)", "next_sentence_labels": "|i1 (3,)",
    },
    "packed": {
        "input_ids": "rows of <i2 (1,)", "segment_ids": "rows of |i1 (1,)", "masked_lm_positions": "rows of <i2 (1,)",
        "masked_lm_ids": "rows of <i2 (1,)", "packed_input_len": "rows of <i2 (1,)",
        "packed_masked_lm_len": "rows of <i2 (1,)", "next_sentence_labels": "rows of |i1 (1,)",
    },
}  # fmt: skip


@pytest.mark.parametrize("layout", list(WRITERS))
def test_layouts_have_published_names_types_and_shapes(tmp_path: Path, layout: Layout) -> None:
    blocks = [columns_of(SAMPLES[:2]), columns_of(SAMPLES[2:])]
    rows = WRITERS[layout](tmp_path / "part.hdf5", 3, blocks)
    assert rows == (1 if layout == "packed" else 3)
    found = {}
    with h5py.File(tmp_path / "part.hdf5") as file:
        for name, field in file.items():
            inside = h5py.check_vlen_dtype(field.dtype)
            found[name] = f"{f'rows of {inside.str}' if inside else field.dtype.str} {field.shape}"
            assert field.compression is None
    assert found == EXPECTED_FIELDS[layout]
    assert samples_of(read_hdf5(tmp_path / "part.hdf5")) == SAMPLES


def test_a_packed_row_says_where_its_sequences_are(tmp_path: Path) -> None:
    WRITERS["packed"](tmp_path / "part.hdf5", 3, [columns_of(SAMPLES)])
    with h5py.File(tmp_path / "part.hdf5") as file:
        assert file["packed_input_len"][0].tolist() == [5, 7, 4]
        assert file["packed_masked_lm_len"][0].tolist() == [1, 2, 1]
        assert file["masked_lm_positions"][0].tolist() == [3, 5 + 1, 5 + 5, 12 + 2]
        assert file["next_sentence_labels"][0].tolist() == [1, 0, 1]


def test_a_tfrecord_file_may_be_compressed_in_several_members(tmp_path: Path) -> None:
    records = [published.framed(published.example(published.features(sample))) for sample in SAMPLES]
    (tmp_path / "part").write_bytes(b"".join(map(gzip.compress, records)))
    assert samples_of(read_tfrecord(tmp_path / "part")) == SAMPLES
