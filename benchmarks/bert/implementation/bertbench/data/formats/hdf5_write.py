"""Write one shard in a published HDF5 layout: fixed, varlength or packed, uncompressed, as published loaders read it.

Memory is bounded by one block for fixed and varlength, and by one shard for packed rows.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal

import h5py
import numpy as np
from numpy.typing import NDArray

from bertbench.data.formats.packing import pack
from bertbench.data.store.columns import Array, Columns
from bertbench.data.store.index import MAX_LENGTH

MAX_PREDICTIONS = 76  # MLPerf's max_predictions_per_seq, the width of the published rows
Layout = Literal["fixed", "varlength", "packed"]
Type = np.dtype[Any]
_INT8: Type = np.dtype("i1")
_INT16: Type = np.dtype("<i2")
_TYPES: dict[str, Type] = {
    "input_ids": _INT16,
    "segment_ids": _INT8,
    "masked_lm_positions": _INT16,
    "masked_lm_ids": _INT16,
}
_TOKEN_FIELDS = ("input_ids", "segment_ids")
_MASKED_FIELDS = ("masked_lm_positions", "masked_lm_ids")


def write_fixed(path: Path, samples: int, blocks: Iterable[Columns]) -> int:
    """Write rows padded with 0 to 512 tokens and 76 predictions; return the number of rows."""
    with h5py.File(path, "w") as file:
        for name, dtype in (_TYPES | {"input_mask": _INT8}).items():
            width = MAX_PREDICTIONS if name in _MASKED_FIELDS else MAX_LENGTH
            file.create_dataset(name, (samples, width), dtype, track_times=False)
        file.create_dataset("next_sentence_labels", (samples,), _INT8, track_times=False)
        first = 0
        for block in blocks:
            stop = first + len(block)
            for name in _TOKEN_FIELDS:
                file[name][first:stop] = _padded(getattr(block, name), block.lengths, MAX_LENGTH)
            file["input_mask"][first:stop] = _padded(np.ones_like(block.segment_ids), block.lengths, MAX_LENGTH)
            for name in _MASKED_FIELDS:
                file[name][first:stop] = _padded(getattr(block, name), block.masked, MAX_PREDICTIONS)
            file["next_sentence_labels"][first:stop] = block.next_sentence_labels
            first = stop
    return samples


def write_varlength(path: Path, samples: int, blocks: Iterable[Columns]) -> int:
    """Write rows of their own length; return the number of rows."""
    with h5py.File(path, "w") as file:
        for name, dtype in _TYPES.items():
            file.create_dataset(name, (samples,), h5py.vlen_dtype(dtype), track_times=False)
        file.create_dataset("next_sentence_labels", (samples,), _INT8, track_times=False)
        first = 0
        for block in blocks:
            stop = first + len(block)
            for name, dtype in _TYPES.items():
                counts = block.lengths if name in _TOKEN_FIELDS else block.masked
                file[name][first:stop] = _rows(getattr(block, name), counts, dtype)
            file["next_sentence_labels"][first:stop] = block.next_sentence_labels
            first = stop
    return samples


def write_packed(path: Path, samples: int, blocks: Iterable[Columns]) -> int:
    """Write rows of up to 3 samples and 512 tokens, positions from the row's start; return the number of rows."""
    shard = Columns.joined(list(blocks))
    rows = pack(shard.lengths.astype(np.int64), MAX_LENGTH)
    per_row = np.fromiter(map(len, rows), np.int64, len(rows))
    shard = shard.take(np.concatenate([np.array(row) for row in rows]))
    row_of_N = np.repeat(np.arange(len(rows)), per_row)
    tokens, masked = (np.bincount(row_of_N, counts).astype(np.int64) for counts in (shard.lengths, shard.masked))
    before_N = np.cumsum(shard.lengths) - shard.lengths
    starts_N = before_N - (np.cumsum(tokens) - tokens)[row_of_N]
    fields: dict[str, tuple[Array, Array, Type]] = {
        "input_ids": (shard.input_ids, tokens, _INT16),
        "segment_ids": (shard.segment_ids, tokens, _INT8),
        "masked_lm_positions": (shard.masked_lm_positions + np.repeat(starts_N, shard.masked), masked, _INT16),
        "masked_lm_ids": (shard.masked_lm_ids, masked, _INT16),
        "packed_input_len": (shard.lengths, per_row, _INT16),
        "packed_masked_lm_len": (shard.masked, per_row, _INT16),
        "next_sentence_labels": (shard.next_sentence_labels, per_row, _INT8),
    }
    with h5py.File(path, "w") as file:
        for name, (values, counts, dtype) in fields.items():
            stored = file.create_dataset(name, (len(rows),), h5py.vlen_dtype(dtype), track_times=False)
            stored[:] = _rows(values, counts, dtype)
    return len(rows)


WRITERS: dict[Layout, Callable[[Path, int, Iterable[Columns]], int]] = {
    "fixed": write_fixed,
    "varlength": write_varlength,
    "packed": write_packed,
}


def _padded(values: Array, counts: Array, width: int) -> Array:
    """Return [N, width] rows, with 0 after their values."""
    padded = np.zeros((len(counts), width), values.dtype)
    padded[np.arange(width) < counts[:, None]] = values
    return padded


def _rows(values: Array, counts: Array, dtype: Type) -> NDArray[Any]:
    """Return rows for h5py: an array each, or a matrix if all are equally long, which h5py would misread as arrays."""
    values = values.astype(dtype, copy=False)
    if (counts == counts[0]).all():
        return values.reshape(len(counts), -1)
    rows = np.empty(len(counts), np.object_)
    ends = np.cumsum(counts)
    for row, (start, end) in enumerate(zip((ends - counts).tolist(), ends.tolist(), strict=True)):
        rows[row] = values[start:end]
    return rows
