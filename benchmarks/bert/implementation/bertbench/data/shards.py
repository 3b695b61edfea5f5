"""Write samples as HDF5 shards of flat arrays, which memory-map, with their index and checksums.

Fields and integer types are MLPerf's; `offsets` and `masked_offsets` say where sample i begins and ends.
The same samples give the same bytes.
"""

import hashlib
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from bertbench.data import index
from bertbench.data.manifest import ShardFile, Split
from bertbench.data.samples import Sample

INDEX_NAME = "index.npy"
Fields = dict[str, np.dtype[Any]]
TOKEN_FIELDS: Fields = {"input_ids": np.dtype("<i2"), "segment_ids": np.dtype("i1")}
MASKED_FIELDS: Fields = {"masked_lm_positions": np.dtype("<i2"), "masked_lm_ids": np.dtype("<i2")}
OFFSETS = np.dtype("<i8")
LABEL = np.dtype("i1")


def write_split(folder: Path, samples: Sequence[Sample], shard_samples: int) -> Split:
    """Write `samples` to folder/part_00000.h5, ... with at most `shard_samples` each, and folder/index.npy."""
    folder.mkdir()
    shards = [
        _write_shard(folder / f"part_{number:05d}.h5", samples[start : start + shard_samples])
        for number, start in enumerate(range(0, len(samples), shard_samples))
    ]
    lengths = np.array([len(sample.input_ids) for sample in samples])
    masked = np.array([len(sample.masked_lm_ids) for sample in samples])
    np.save(folder / INDEX_NAME, index.pack(lengths, masked))
    return Split(
        samples=len(samples),
        tokens=int(lengths.sum()),
        masked_tokens=int(masked.sum()),
        index_sha256=file_sha256(folder / INDEX_NAME),
        shards=tuple(shards),
    )


def _write_shard(path: Path, samples: Sequence[Sample]) -> ShardFile:
    with h5py.File(path, "w", libver="latest") as file:
        lengths = [len(sample.input_ids) for sample in samples]
        masked = [len(sample.masked_lm_ids) for sample in samples]
        _store(file, "offsets", _offsets(lengths))
        _store(file, "masked_offsets", _offsets(masked))
        for name, dtype in (TOKEN_FIELDS | MASKED_FIELDS).items():
            _store(file, name, np.fromiter(_flat(samples, name), dtype))
        _store(file, "next_sentence_labels", np.array([sample.next_sentence_label for sample in samples], LABEL))
    return ShardFile(path.name, len(samples), path.stat().st_size, file_sha256(path))


def _flat(samples: Sequence[Sample], name: str) -> Iterator[int]:
    return chain.from_iterable(getattr(sample, name) for sample in samples)


def _offsets(lengths: list[int]) -> NDArray[np.int64]:
    return np.concatenate(([0], np.cumsum(lengths))).astype(OFFSETS)


def _store(file: h5py.File, name: str, values: NDArray[np.integer]) -> None:
    """A contiguous dataset without timestamps: readers map it from the file."""
    file.create_dataset(name, data=values, track_times=False)


def file_sha256(path: Path) -> str:
    """Checksum of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
