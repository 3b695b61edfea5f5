"""Write samples as HDF5 shards of flat arrays, which memory-map, with their index and checksums.

Fields and integer types are MLPerf's; `offsets` and `masked_offsets` say where sample i begins and ends.
The same samples give the same bytes. Memory is bounded by one shard.
"""

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from bertbench.data import index
from bertbench.data.columns import Array, Columns
from bertbench.data.manifest import ShardFile, Split

INDEX_NAME = "index.npy"
Fields = dict[str, np.dtype[Any]]
TOKEN_FIELDS: Fields = {"input_ids": np.dtype("<i2"), "segment_ids": np.dtype("i1")}
MASKED_FIELDS: Fields = {"masked_lm_positions": np.dtype("<i2"), "masked_lm_ids": np.dtype("<i2")}
OFFSETS = np.dtype("<i8")
LABEL = np.dtype("i1")


def write_split(folder: Path, blocks: Iterable[Columns], shard_samples: int) -> Split:
    """Write blocks of samples to folder/part_00000.h5, ... with `shard_samples` each, and folder/index.npy.

    Samples keep their order, whatever the size of the blocks.
    """
    folder.mkdir()
    shards, entries = [], []
    for number, shard in enumerate(_regrouped(blocks, shard_samples)):
        shards.append(write_shard(folder / f"part_{number:05d}.h5", shard))
        entries.append(index.pack(shard.lengths, shard.masked))
    return finish_split(folder, shards, entries)


def finish_split(folder: Path, shards: list[ShardFile], entries: list[index.Index]) -> Split:
    """Write the index of a split whose shards are written, given each shard's entries in order."""
    joined = np.concatenate([np.empty(0, np.uint16), *entries])
    np.save(folder / INDEX_NAME, joined)
    return Split(
        samples=len(joined),
        tokens=int(index.lengths_of(joined).sum()),
        masked_tokens=int(index.masked_of(joined).sum()),
        index_sha256=file_sha256(folder / INDEX_NAME),
        shards=tuple(shards),
    )


def write_shard(path: Path, samples: Columns) -> ShardFile:
    """Write one shard."""
    with h5py.File(path, "w", libver="latest") as file:
        _store(file, "offsets", _offsets(samples.lengths))
        _store(file, "masked_offsets", _offsets(samples.masked))
        for name, dtype in (TOKEN_FIELDS | MASKED_FIELDS | {"next_sentence_labels": LABEL}).items():
            _store(file, name, getattr(samples, name).astype(dtype, copy=False))
    return ShardFile(path.name, len(samples), path.stat().st_size, file_sha256(path))


def _regrouped(blocks: Iterable[Columns], size: int) -> Iterator[Columns]:
    """The same samples in blocks of `size`; the last one may be smaller."""
    waiting: list[Columns] = []
    for block in blocks:
        waiting.append(block)
        if sum(map(len, waiting)) >= size:
            *full, rest = Columns.joined(waiting).split(size)
            yield from full
            waiting = [rest]
    if sum(map(len, waiting)):
        yield from Columns.joined(waiting).split(size)


def _offsets(lengths: Array) -> Array:
    return np.concatenate(([0], np.cumsum(lengths))).astype(OFFSETS)


def _store(file: h5py.File, name: str, values: Array) -> None:
    """A contiguous dataset without timestamps: readers map it from the file."""
    file.create_dataset(name, data=values, track_times=False)


def file_sha256(path: Path) -> str:
    """Checksum of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
