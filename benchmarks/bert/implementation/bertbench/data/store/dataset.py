"""Read a prepared split: its whole index, and its samples by id from memory-mapped shards.

Opening reads metadata only, so it may happen before the clock starts; reading through `map_samples` is the first
touch of training data. Shapes: N samples in the split.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np

from bertbench.common.errors import DataError
from bertbench.common.system_faults import unreadable
from bertbench.data.store.columns import (
    INDEX_NAME,
    SAMPLE_FIELDS,
    SHARD_FIELDS,
    Array,
    Columns,
    Index,
    Integers,
    lengths_of,
    masked_of,
)
from bertbench.data.store.hdf5 import open_hdf5
from bertbench.data.store.manifest import AGAIN, Manifest, Split, SplitName, check_size
from bertbench.data.store.mapped_file import mapped_bytes

BLOCK_SAMPLES = 4096


class ShardViews(NamedTuple):
    """A shard's offsets and fields as Python's memoryviews, which slice single samples twice as fast as numpy."""

    offsets: memoryview
    masked_offsets: memoryview
    input_ids: memoryview
    segment_ids: memoryview
    masked_lm_positions: memoryview
    masked_lm_ids: memoryview
    next_sentence_labels: memoryview


class MappedShard:
    """One shard's arrays, mapped from the file and read when used; the file isn't kept open.

    Raises DataError if the file can't be read or mapped, a field is missing, or its type or size doesn't match the
    shard's offsets.
    """

    def __init__(self, path: Path, samples: int) -> None:
        with open_hdf5(path, AGAIN) as file:
            content = _mapped(path)
            self.offsets = _field(path, file, content, "offsets", samples + 1)
            self.masked_offsets = _field(path, file, content, "masked_offsets", samples + 1)
            tokens = int(self.offsets[-1])
            masked = int(self.masked_offsets[-1])
            sizes = {
                "input_ids": tokens,
                "segment_ids": tokens,
                "masked_lm_positions": masked,
                "masked_lm_ids": masked,
                "next_sentence_labels": samples,
            }
            self.fields = {name: _field(path, file, content, name, sizes[name]) for name in SAMPLE_FIELDS}
        views = {name: field.data for name, field in self.fields.items()}
        self.views = ShardViews(self.offsets.data, self.masked_offsets.data, **views)

    def content(self) -> Columns:
        """Return all samples of the shard; they stay on disk until they are used."""
        return Columns(np.diff(self.offsets), np.diff(self.masked_offsets), **self.fields)


@dataclass(frozen=True)
class Dataset:
    """One split of a prepared dataset; sample ids are 0 to N - 1, in shard order."""

    folder: Path
    name: SplitName
    split: Split
    entries_N: Index

    @classmethod
    def open(cls, folder: Path, name: SplitName) -> "Dataset":
        """Open the index of a split, and check its shards' sizes against the manifest.

        Raises DataError if something is missing, truncated, or doesn't match the manifest.
        """
        split = Manifest.read(folder).splits().get(name)
        if split is None or not split.samples:
            raise DataError(f"{folder}: holds no {name} samples; prepare them with `bertbench data prepare`")
        for shard in split.shards:
            check_size(folder / name / shard.name, shard)
        return cls(folder, name, split, read_index(folder / name, split))

    def __len__(self) -> int:
        return self.split.samples

    def lengths(self, ids: Integers) -> Integers:
        """Return the number of tokens of each of these samples."""
        return lengths_of(self.entries_N[ids])

    def masked(self, ids: Integers) -> Integers:
        """Return the number of masked tokens of each of these samples."""
        return masked_of(self.entries_N[ids])

    def map_samples(self) -> "MappedSamples":
        """Map all samples; they stay on disk. Reading the first one is the run's first touch of the data."""
        return MappedSamples(cache(self.shard), np.cumsum([0, *(shard.samples for shard in self.split.shards)]))

    def shard(self, number: int) -> MappedShard:
        """Map one shard. Raises DataError if its fields are wrong."""
        shard = self.split.shards[number]
        return MappedShard(self.folder / self.name / shard.name, shard.samples)


@dataclass(frozen=True)
class MappedSamples:
    """The shards of a split, with the first id of each.

    A shard is opened when its first sample is read: opening all of MLPerf's shards takes seconds on the clock.
    """

    shard: Callable[[int], MappedShard]
    first_ids: Integers

    def shards_of(self, ids: Integers) -> Integers:
        """Return the numbers of the shards that hold these samples."""
        return np.searchsorted(self.first_ids, ids, side="right") - 1


def read_index(folder: Path, split: Split) -> Index:
    """Map the index of a split. Raises DataError if it can't be read or isn't the one that the manifest describes."""
    path = folder / INDEX_NAME
    try:
        entries_N: Index = np.lib.format.open_memmap(path, mode="r")
    except OSError as error:
        raise DataError(unreadable(path, error, AGAIN)) from error
    except ValueError as error:
        raise DataError(f"{path}: is not a complete numpy array ({error}); {AGAIN}") from error
    if entries_N.dtype != np.uint16 or entries_N.shape != (split.samples,):
        raise DataError(
            f"{path}: found {entries_N.dtype} of shape {entries_N.shape}, the manifest says uint16 of shape "
            f"({split.samples},); {AGAIN}"
        )
    return entries_N


def _mapped(path: Path) -> Array:
    try:
        return mapped_bytes(path)
    except OSError as error:
        raise DataError(unreadable(path, error, AGAIN)) from error


def _field(path: Path, file: h5py.File, content: Array, name: str, length: int) -> Array:
    """Return the values of a field as a part of the file's mapped content."""
    dtype = SHARD_FIELDS[name]
    field = file.get(name)
    expected = f"expected {dtype} of shape ({length},) in one piece; {AGAIN}"
    if not isinstance(field, h5py.Dataset):
        raise DataError(f"{path}: {name}: found nothing of that name, {expected}")
    if field.dtype != dtype or field.shape != (length,) or field.chunks:
        raise DataError(f"{path}: {name}: found {field.dtype} of shape {field.shape}, {expected}")
    start = field.id.get_offset()
    if start is None or start + length * dtype.itemsize > len(content):
        raise DataError(f"{path}: {name}: found values that aren't in the file, {expected}")
    return np.frombuffer(content, dtype, length, start)


def shard_blocks(dataset: Dataset, number: int) -> Iterator[Columns]:
    """Yield the samples of one shard in bounded blocks, for sequential readers. Raises DataError as `shard` does."""
    yield from dataset.shard(number).content().split(BLOCK_SAMPLES)
