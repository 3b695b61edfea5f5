"""Write one shard as HDF5 rows of variable length, uncompressed, as published loaders read it."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from bertbench.data.store.columns import FIELDS, Array, Columns
from bertbench.data.store.hdf5 import create_hdf5


def write_varlength(path: Path, samples: int, blocks: Iterable[Columns]) -> None:
    """Write a row per sample; memory is bounded by one block."""
    with create_hdf5(path) as file:
        for name in ("input_ids", "segment_ids", "masked_lm_positions", "masked_lm_ids"):
            file.create_dataset(name, (samples,), h5py.vlen_dtype(FIELDS[name]), track_times=False)
        file.create_dataset("next_sentence_labels", (samples,), FIELDS["next_sentence_labels"], track_times=False)
        first = 0
        for block in blocks:
            stop = first + len(block)
            for name, field in file.items():
                counts = block.masked if name.startswith("masked") else block.lengths
                values: Array = getattr(block, name)
                field[first:stop] = values if name == "next_sentence_labels" else _rows(values, counts, FIELDS[name])
            first = stop


def _rows(values: Array, counts: Array, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return rows for h5py: an array each, or a matrix if all are equally long, which h5py would misread as arrays."""
    values = values.astype(dtype, copy=False)
    if (counts == counts[0]).all():
        return values.reshape(len(counts), -1)
    rows = np.empty(len(counts), np.object_)
    rows[:] = np.split(values, np.cumsum(counts)[:-1])
    return rows
