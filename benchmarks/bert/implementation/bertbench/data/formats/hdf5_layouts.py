"""Read the published HDF5 layouts (fixed, varlength and packed), in file order and bounded blocks.

Field names, types and padding: MLCommons' and NVIDIA's BERT submissions, rounds 1.0 to 5.0 (docs/data.md).
"""

from collections.abc import Iterator
from math import prod
from pathlib import Path

import h5py
import numpy as np

from bertbench.common.errors import DataError
from bertbench.data.formats.rows import BLOCK_ROWS, Block, FilePlace, Rows
from bertbench.data.formats.samples import unpacked, unpadded
from bertbench.data.store.columns import MAX_LENGTH
from bertbench.data.store.hdf5 import open_hdf5

_COMMON = ("input_ids", "segment_ids", "masked_lm_positions", "masked_lm_ids", "next_sentence_labels")
_FILTERS = {307: "bzip2", 32001: "Blosc", 32004: "LZ4", 32008: "bitshuffle", 32015: "Zstandard", 32026: "Blosc2"}
"""The usual ones of HDF5's registered filters, because files needn't name theirs."""
_MOST_CACHED = 1 << 29  # bytes
_LEAST_CACHED = 1 << 20  # bytes; HDF5's default
_CACHE_SLOTS = 5003  # a prime, as HDF5 asks; a row has at most 512 chunks
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
            rows = {name: _read_rows(path, name, field, first) for name, field in fields.items()}
            place = FilePlace(path, "row", first)
            yield unpacked(rows, place) if is_packed else unpadded(rows, place)


def _has_variable_rows(field: h5py.Dataset) -> bool:
    """Return whether rows have lengths of their own."""
    return h5py.check_vlen_dtype(field.dtype) is not None


def _field(path: Path, file: h5py.File, name: str) -> h5py.Dataset:
    """Open a field with a cache for all chunks of a row: each block would decompress large chunks again."""
    access = h5py.h5p.create(h5py.h5p.DATASET_ACCESS)
    access.set_chunk_cache(_CACHE_SLOTS, max(_LEAST_CACHED, _checked_field(path, file, name)), 1.0)
    return h5py.Dataset(h5py.h5d.open(file.id, name.encode(), access))


def _checked_field(path: Path, file: h5py.File, name: str) -> int:
    """Return the bytes of the chunks that hold a row. Raises DataError for a field that can't be read as samples."""
    field = file.get(name)
    if not isinstance(field, h5py.Dataset):
        names = ", ".join(sorted(map(str, file))) or "nothing"
        raise DataError(
            f"{path}: found no field {name}, but {names}; expected the fields of the fixed, varlength or packed layout "
            "(docs/data.md); no other layout is read"
        )
    values_type = np.dtype(h5py.check_vlen_dtype(field.dtype) or field.dtype)
    if not field.ndim or values_type.kind not in "iu":
        raise DataError(
            f"{path}: {name}: found {field.dtype} of shape {field.shape}, expected rows of integers; "
            "download or make the file again"
        )
    _require_values(path, name, field)
    return _chunk_bytes(path, name, field) if field.chunks else 0


def _require_values(path: Path, name: str, field: h5py.Dataset) -> None:
    """Raise DataError for rows that are too wide, and for values that aren't in the file: HDF5 would make them up.

    So a small file can't claim to be a large one.
    """
    width = prod(field.shape[1:])
    if width > MAX_LENGTH:
        raise DataError(
            f"{path}: {name}: found rows of {width:,} values, expected at most {MAX_LENGTH}; make the file again"
        )
    if field.chunks:
        chunks = prod(-(-size // chunk) for size, chunk in zip(field.shape, field.chunks, strict=True))
        is_held = field.id.get_num_chunks() == chunks
    else:
        is_held = field.id.get_storage_size() >= prod(field.shape) * field.id.get_type().get_size()
    if not is_held:
        raise DataError(
            f"{path}: {name}: found fewer values than its shape {field.shape} says; download or make the file again"
        )


def _chunk_bytes(path: Path, name: str, field: h5py.Dataset) -> int:
    """Return the bytes of the chunks that hold a row, uncompressed. Raises DataError for too many."""
    rows, *sizes = field.chunks
    width = prod(-(-length // size) * size for length, size in zip(field.shape[1:], sizes, strict=True))
    chunk_bytes = rows * width * field.id.get_type().get_size()
    if chunk_bytes > _MOST_CACHED:
        raise DataError(
            f"{path}: {name}: found chunks of {rows:,} rows, which take {chunk_bytes:,} bytes, expected at most "
            f"{_MOST_CACHED:,}; write the file again with smaller chunks (h5repack)"
        )
    return chunk_bytes


def _require_equal_rows(path: Path, fields: dict[str, h5py.Dataset]) -> None:
    rows = len(fields["input_ids"])
    for name, field in fields.items():
        if len(field) != rows:
            raise DataError(
                f"{path}: found {rows:,} rows of input_ids but {len(field):,} of {name}, expected the same number; "
                "download or make the file again"
            )


def _read_rows(path: Path, name: str, field: h5py.Dataset, first: int) -> Rows:
    try:
        values = field[first : first + BLOCK_ROWS]
    except OSError as error:
        missing = _missing_filter(field)
        if missing is None:
            raise
        raise DataError(
            f"{path}: {name}: found values compressed by HDF5's filter {missing}, which isn't installed here; set "
            "HDF5_PLUGIN_PATH to its folder, or write the file again with gzip (h5repack) where it is installed"
        ) from error
    if _has_variable_rows(field):
        return Rows.of(values)
    return Rows(values.reshape(-1), np.full(len(values), values[0].size))


def _missing_filter(field: h5py.Dataset) -> str | None:
    """Return number and name of a filter that a field may be compressed by, and that this machine's HDF5 lacks."""
    properties = field.id.get_create_plist()
    for place in range(properties.get_nfilters()):
        number, _, _, label = properties.get_filter(place)
        if not h5py.h5z.filter_avail(number):
            return f"{number} ({_FILTERS.get(number) or label.decode(errors='replace') or 'unknown'})"
    return None
