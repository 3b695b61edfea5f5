import gzip
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from bertbench.data.formats import hdf5_layouts, tfrecord
from bertbench.data.formats.example import integers
from bertbench.data.formats.hdf5_layouts import read_hdf5
from bertbench.data.formats.rows import Block
from bertbench.data.formats.tfrecord import read_tfrecord
from bertbench.data.store.columns import Columns
from tests.data import published
from tests.data.published import SAMPLES
from tests.protobuf import varint
from tests.tiny import Sample, samples_of


def padded_predictions() -> published.Fields:
    fields = published.varlength_fields()
    return fields | {
        name: [np.append(row, [0, 0]) for row in fields[name]] for name in ("masked_lm_positions", "masked_lm_ids")
    }


def hdf5(fields: Callable[[], published.Fields], compression: str | None = None) -> Callable[[Path], Iterator[Block]]:
    return lambda path: read_hdf5(published.write_hdf5(path, fields(), compression))


def records(packed: bool = True, compressed: bool = False) -> Callable[[Path], Iterator[Block]]:
    contents = [published.example(published.features(sample), packed) for sample in SAMPLES]
    return lambda path: read_tfrecord(published.write_tfrecord(path, contents, compressed))


def several_members(path: Path) -> Iterator[Block]:
    contents = [published.framed(published.example(published.features(sample))) for sample in SAMPLES]
    path.write_bytes(b"".join(map(gzip.compress, contents)))
    return read_tfrecord(path)


LAYOUTS = {
    "fixed": hdf5(published.fixed_fields),
    "fixed, compressed": hdf5(published.fixed_fields, "gzip"),
    "varlength": hdf5(published.varlength_fields),
    "varlength, predictions padded": hdf5(padded_predictions),
    "packed": hdf5(published.packed_fields),
    "TFRecord": records(),
    "TFRecord, a field each": records(packed=False),
    "TFRecord, compressed": records(compressed=True),
    "TFRecord, several members": several_members,
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("rows", [2, 2048])
def test_every_layout_is_read_in_bounded_blocks(
    tmp_path: Path, layout: str, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hdf5_layouts, "BLOCK_ROWS", rows)
    monkeypatch.setattr(tfrecord, "BLOCK_ROWS", rows)
    blocks = list(LAYOUTS[layout](tmp_path / "part"))
    assert samples_of(Columns.joined([block.columns for block in blocks])) == SAMPLES
    if layout == "packed":  # the first row holds two samples
        assert blocks[0].rows.tolist() == [0, 0, 1]
    elif rows == 2:
        assert [(len(block.columns), block.place.first) for block in blocks] == [(2, 0), (1, 2)]


def test_integers_are_decoded_from_varints_of_all_lengths() -> None:
    values = [[0, 127, 128], [], [300, -1, 2**63 - 1], [-(2**63)]]
    rows = integers([b"".join(map(varint, row)) for row in values])
    assert rows.values.tolist() == [0, 127, 128, 300, -1, 2**63 - 1, -(2**63)]
    assert rows.counts.tolist() == [3, 0, 3, 1]
    for damaged in (b"\x80", b"\xff" * 11 + b"\x01"):
        with pytest.raises(ValueError, match=r"missing|more than 10 bytes"):
            integers([b"\x01", damaged])


def test_a_record_of_mlperf_s_width_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published, "WIDTH", 512)
    monkeypatch.setattr(published, "PREDICTIONS", 76)
    full = Sample([30521] * 512, [0] * 200 + [1] * 312, [*range(100, 176)], [16384] * 76, 1)
    content = published.example(published.features(full))
    (block,) = read_tfrecord(published.write_tfrecord(tmp_path / "part", [content]))
    assert samples_of(block.columns) == [full]
