"""Read the published HDF5 layouts: fixed, varlength and packed, in file order and bounded blocks.

Field names, types and padding: MLCommons' and NVIDIA's BERT submissions, rounds 1.0 to 5.0 (docs/formats.md).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import h5py
import numpy as np

from bertbench.common.errors import DataError
from bertbench.data.formats.rows import BLOCK_ROWS, Block, Place, Rows
from bertbench.data.formats.samples import unpacked, unpadded

Kind = Literal["matrix", "ragged", "column"]
"""[N, L] integers; [N] arrays of integers; [N] integers."""

_COMMON = ("input_ids", "segment_ids", "masked_lm_positions", "masked_lm_ids")
FIXED: dict[str, Kind] = {
    **dict.fromkeys((*_COMMON, "input_mask"), "matrix"), "next_sentence_labels": "column",
}  # fmt: skip
VARLENGTH: dict[str, Kind] = {**dict.fromkeys(_COMMON, "ragged"), "next_sentence_labels": "column"}
PACKED: dict[str, Kind] = dict.fromkeys(
    (*_COMMON, "packed_input_len", "packed_masked_lm_len", "next_sentence_labels"), "ragged"
)
_EXPECTED: dict[Kind, tuple[int, bool, str]] = {
    "matrix": (2, False, "integers in rows of equal length"),
    "ragged": (1, True, "rows of integers of variable length"),
    "column": (1, False, "one integer a row"),
}
"""Dimensions, whether they hold arrays, and the words for it."""


def read_hdf5(path: Path) -> Iterator[Block]:
    """Yield all samples of one file, compressed or not; its fields determine the layout.

    Raises DataError if the file is damaged or has no published layout, or for the first faulty row.
    """
    try:
        with h5py.File(path, "r") as file:
            layout = _layout(file)
            fields = {name: _field(path, file, name, kind) for name, kind in layout.items()}
            _require_equal_rows(path, fields)
            for first in range(0, len(fields["input_ids"]), BLOCK_ROWS):
                rows = {name: _rows(field, layout[name], first) for name, field in fields.items()}
                place = Place(path, "row", first)
                yield unpacked(rows, place) if layout is PACKED else unpadded(rows, place)
    except (OSError, RuntimeError, KeyError) as error:  # h5py raises these on damaged files
        raise DataError(
            f"{path}: cannot be read as HDF5 ({error}); expected a whole HDF5 file, get or make it again"
        ) from error


def _layout(file: h5py.File) -> dict[str, Kind]:
    if "packed_input_len" in file or "packed_masked_lm_len" in file:
        return PACKED
    tokens = file.get("input_ids")
    if isinstance(tokens, h5py.Dataset) and h5py.check_vlen_dtype(tokens.dtype) is not None:
        return VARLENGTH
    return FIXED


def _field(path: Path, file: h5py.File, name: str, kind: Kind) -> h5py.Dataset:
    field = file.get(name)
    if not isinstance(field, h5py.Dataset):
        held = ", ".join(sorted(map(str, file))) or "nothing"
        raise DataError(
            f"{path}: found no field {name}, but {held}; expected the fields of the fixed, varlength or packed layout "
            "(docs/formats.md); get or make the file again"
        )
    inside = h5py.check_vlen_dtype(field.dtype)
    *shape, expected = _EXPECTED[kind]
    if [field.ndim, inside is not None] != shape or np.dtype(inside or field.dtype).kind not in "iu":
        described = f"rows of {inside}" if inside is not None else str(field.dtype)
        raise DataError(
            f"{path}: {name}: found {described} of shape {field.shape}, expected {expected}; get or make the file again"
        )
    return field


def _require_equal_rows(path: Path, fields: dict[str, h5py.Dataset]) -> None:
    rows = len(fields["input_ids"])
    for name, field in fields.items():
        if len(field) != rows:
            raise DataError(
                f"{path}: found {rows:,} rows of input_ids with {len(field):,} of {name}, expected as many; "
                "get or make the file again"
            )


def _rows(field: h5py.Dataset, kind: Kind, first: int) -> Rows:
    values = field[first : first + BLOCK_ROWS]
    if kind == "ragged":
        return Rows.of(values)
    return Rows(values.reshape(-1), np.full(len(values), values[0].size))
