"""Read the published HDF5 layouts (fixed, varlength and packed), in file order and bounded blocks.

Field names, types and padding: MLCommons' and NVIDIA's BERT submissions, rounds 1.0 to 5.0 (docs/formats.md).
"""

from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np

from bertbench.common.errors import DataError
from bertbench.data.formats.rows import BLOCK_ROWS, Block, FilePlace, Rows
from bertbench.data.formats.samples import unpacked, unpadded
from bertbench.data.store.hdf5 import open_hdf5

_COMMON = ("input_ids", "segment_ids", "masked_lm_positions", "masked_lm_ids", "next_sentence_labels")
_PACKED = ("packed_input_len", "packed_masked_lm_len")


def read_hdf5(path: Path) -> Iterator[Block]:
    """Yield all samples of one file, compressed or not; its fields determine the layout.

    Raises DataError if the file is damaged or has no published layout, or for the first faulty row.
    """
    with open_hdf5(path, "expected a complete HDF5 file; download or make it again") as file:
        is_packed = any(name in file for name in _PACKED)
        fields = {name: _field(path, file, name) for name in _COMMON}
        if is_packed:
            for name in _PACKED:
                fields[name] = _field(path, file, name)
        elif not _has_variable_rows(fields["input_ids"]):
            fields["input_mask"] = _field(path, file, "input_mask")
        _require_equal_rows(path, fields)
        for first in range(0, len(fields["input_ids"]), BLOCK_ROWS):
            rows = {name: _read_rows(field, first) for name, field in fields.items()}
            place = FilePlace(path, "row", first)
            yield unpacked(rows, place) if is_packed else unpadded(rows, place)


def _has_variable_rows(field: h5py.Dataset) -> bool:
    """Return whether rows have lengths of their own."""
    return h5py.check_vlen_dtype(field.dtype) is not None


def _field(path: Path, file: h5py.File, name: str) -> h5py.Dataset:
    field = file.get(name)
    if not isinstance(field, h5py.Dataset):
        names = ", ".join(sorted(map(str, file))) or "nothing"
        raise DataError(
            f"{path}: found no field {name}, but {names}; expected the fields of the fixed, varlength or packed layout "
            "(docs/formats.md); download or make the file again"
        )
    values_type = np.dtype(h5py.check_vlen_dtype(field.dtype) or field.dtype)
    if not field.ndim or values_type.kind not in "iu":
        raise DataError(
            f"{path}: {name}: found {field.dtype} of shape {field.shape}, expected rows of integers; "
            "download or make the file again"
        )
    return field


def _require_equal_rows(path: Path, fields: dict[str, h5py.Dataset]) -> None:
    rows = len(fields["input_ids"])
    for name, field in fields.items():
        if len(field) != rows:
            raise DataError(
                f"{path}: found {rows:,} rows of input_ids but {len(field):,} of {name}, expected the same number; "
                "download or make the file again"
            )


def _read_rows(field: h5py.Dataset, first: int) -> Rows:
    values = field[first : first + BLOCK_ROWS]
    if _has_variable_rows(field):
        return Rows.of(values)
    return Rows(values.reshape(-1), np.full(len(values), values[0].size))
