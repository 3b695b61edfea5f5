"""Write samples as HDF5 shards of flat arrays, which memory-map, with their index and checksums.

Fields and integer types are MLPerf's; `offsets` and `masked_offsets` give the bounds of sample i.
The same samples give the same bytes. Memory is bounded by one shard.
"""

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from bertbench.common.errors import DataError, system_reason
from bertbench.data.store import index
from bertbench.data.store.columns import Array, Columns
from bertbench.data.store.manifest import ShardFile, Split

INDEX_NAME = "index.npy"
FIELDS: dict[str, np.dtype[Any]] = {
    "offsets": np.dtype("<i8"),
    "masked_offsets": np.dtype("<i8"),
    "input_ids": np.dtype("<i2"),
    "segment_ids": np.dtype("i1"),
    "masked_lm_positions": np.dtype("<i2"),
    "masked_lm_ids": np.dtype("<i2"),
    "next_sentence_labels": np.dtype("i1"),
}
"""Datasets of a shard, in written order."""


def write_split(folder: Path, blocks: Iterable[Columns], shard_samples: int) -> Split:
    """Write blocks of samples to folder/part_00000.h5, ... with `shard_samples` each, and folder/index.npy.

    Samples keep their order for any block size.
    """
    folder.mkdir()
    shards, entries = [], []
    for number, shard in enumerate(regrouped(blocks, shard_samples)):
        shards.append(write_shard(folder / f"part_{number:05d}.h5", shard))
        entries.append(index.pack(shard.lengths, shard.masked))
    return finish_split(folder, shards, entries)


def finish_split(folder: Path, shards: list[ShardFile], entries: list[index.Index]) -> Split:
    """Write the index of a split whose shards are written, given each shard's entries in order."""
    sizes = [len(part) for part in entries]
    whole = np.lib.format.open_memmap(folder / INDEX_NAME, "w+", np.uint16, (sum(sizes),))
    for part, stop in zip(entries, np.cumsum(sizes), strict=True):
        whole[stop - len(part) : stop] = part
    whole.flush()
    return Split(
        samples=len(whole),
        tokens=sum(int(index.lengths_of(part).sum()) for part in entries),
        masked_tokens=sum(int(index.masked_of(part).sum()) for part in entries),
        longest=max((int(index.lengths_of(part).max()) for part in entries), default=0),
        index_sha256=file_sha256(folder / INDEX_NAME),
        shards=tuple(shards),
    )


def write_shard(path: Path, samples: Columns) -> ShardFile:
    """Write one shard."""
    values = {**vars(samples), "offsets": _offsets(samples.lengths), "masked_offsets": _offsets(samples.masked)}
    with h5py.File(path, "w", libver="latest") as file:
        for name, dtype in FIELDS.items():
            # contiguous, without timestamps: readers map it from the file, and the same samples give the same bytes
            file.create_dataset(name, data=values[name].astype(dtype, copy=False), track_times=False)
    return ShardFile(path.name, len(samples), path.stat().st_size, file_sha256(path))


def regrouped(blocks: Iterable[Columns], size: int) -> Iterator[Columns]:
    """Yield the same samples in blocks of `size`; the last one may be smaller."""
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
    return np.concatenate(([0], np.cumsum(lengths)))


def source_sha256(path: Path) -> str:
    """Return the checksum of a user's file; raises DataError if it can't be read."""
    try:
        return file_sha256(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({system_reason(error)}); give a readable file") from error


def file_sha256(path: Path) -> str:
    """Return the checksum of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
