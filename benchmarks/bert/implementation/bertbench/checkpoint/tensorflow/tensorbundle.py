"""Read a TensorFlow checkpoint without TensorFlow: NAME.index and NAME.data-<i>-of-<n>.

Format: tensorflow/core/util/tensor_bundle and core/protobuf/tensor_bundle.proto. The index maps a tensor's name to a
BundleEntryProto: type, shape, shard, offset, size, masked CRC-32C; the empty name maps to a BundleHeaderProto.
"""

import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from bertbench.checkpoint.tensorflow.sstable import read_table
from bertbench.common.errors import CheckpointError
from bertbench.common.protobuf import as_bytes, as_number, fields, masked
from bertbench.common.system_faults import unreadable

_INDEX_END = ".index"
_SHOWN = 5
_FLOAT = 1
_CHECKED_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class BundleEntry:
    """One tensor as the index describes it."""

    type: int
    """TensorFlow's number of the data type (types.proto)."""
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    """In bytes."""
    checksum: int
    """Masked CRC-32C of the bytes."""
    slices: int
    """Parts of a partitioned variable; 0 for a whole one."""


@dataclass(frozen=True)
class Bundle:
    """An open checkpoint; a data file is mapped when one of its tensors is read."""

    prefix: Path
    entries: dict[str, BundleEntry]
    shards: int

    @classmethod
    def open(cls, prefix: Path) -> "Bundle":
        """Read the index of the checkpoint `prefix`, a path without .index.

        Raises CheckpointError if it is missing, damaged, or was written on a big-endian machine.
        """
        path = prefix.parent / f"{prefix.name}{_INDEX_END}"
        table = read_table(path, _choice(prefix))
        header = table.pop(b"", None)
        if header is None:
            raise CheckpointError(f"{path}: is a table without a checkpoint's header; give a checkpoint's path")
        try:
            head = dict(fields(header))  # 1 num_shards, 2 endianness, 3 version
            entries = {key.decode("utf-8", errors="backslashreplace"): _entry(value) for key, value in table.items()}
            shards = as_number(head.get(1, 0))
        except ValueError as error:
            raise CheckpointError(f"{path}: is damaged ({error}); copy the checkpoint again") from error
        if head.get(2, 0) != 0:
            raise CheckpointError(f"{path}: is big-endian, expected little-endian; save it again on such a machine")
        return cls(prefix, entries, shards)

    def read(self, name: str) -> NDArray[np.float32]:
        """Return one tensor after verifying its checksum, as a read-only view of the mapped file.

        Raises CheckpointError if it is partitioned, not float32, or damaged.
        """
        entry = self.entries[name]
        if entry.slices:
            raise CheckpointError(
                f"{self.prefix}: {name}: is a partitioned variable of {entry.slices} slices, expected a whole one; "
                "save the checkpoint without a partitioner"
            )
        if entry.type != _FLOAT:
            raise CheckpointError(
                f"{self.prefix}: {name}: found type {entry.type}, expected {_FLOAT} (float32); "
                "save the checkpoint in float32"
            )
        data, path = self._bytes(name, entry)
        if masked(_crc32c(data)) != entry.checksum:
            raise self._damaged(path, name, "its checksum is wrong")
        if entry.size != 4 * math.prod(entry.shape):
            raise self._damaged(path, name, f"{entry.size:,} bytes don't make {entry.shape} of float32")
        return data.view("<f4").reshape(entry.shape)

    def _bytes(self, name: str, entry: BundleEntry) -> tuple[NDArray[np.uint8], Path]:
        path = self.prefix.with_name(f"{self.prefix.name}.data-{entry.shard:05d}-of-{self.shards:05d}")
        try:
            shard = np.memmap(path, np.uint8, mode="r")
        except OSError as error:
            remedy = f"it holds {name}: copy all data files next to the .index file"
            raise CheckpointError(unreadable(path, error, remedy)) from error
        except ValueError as error:  # an empty file can't be mapped
            raise CheckpointError(
                f"{path}: is empty, but holds {name}; copy all data files next to the .index file"
            ) from error
        if entry.offset + entry.size > len(shard):
            raise self._damaged(path, name, f"the tensor ends at byte {entry.offset + entry.size:,} of {len(shard):,}")
        return shard[entry.offset : entry.offset + entry.size], path

    @staticmethod
    def _damaged(path: Path, name: str, reason: str) -> CheckpointError:
        return CheckpointError(f"{path}: {name}: is damaged ({reason}); copy the checkpoint again")


def _choice(prefix: Path) -> str:
    """Return how to name a checkpoint, and the names of those in a folder or beside a file."""
    folder = prefix if prefix.is_dir() else prefix.parent
    names = sorted(path.name.removesuffix(_INDEX_END) for path in folder.glob(f"*{_INDEX_END}"))
    advice = "give the checkpoint's path without .index, .meta or .data-00000-of-00001"
    if not names:
        return advice
    shown = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
    return f"{advice}; {folder} has {shown}"


def _crc32c(data: NDArray[np.uint8]) -> int:
    """Return the CRC-32C of mapped bytes; the library only takes `bytes`, and copies in cache cost no time."""
    crc = 0
    for start in range(0, len(data), _CHECKED_AT_ONCE):
        crc = google_crc32c.extend(crc, data[start : start + _CHECKED_AT_ONCE].tobytes())
    return crc


def _entry(message: bytes) -> BundleEntry:
    """Parse a BundleEntryProto: 1 dtype, 2 shape, 3 shard_id, 4 offset, 5 size, 6 crc32c, 7 slices."""
    values = Counter[int]()  # 0 where a field is missing
    shape: tuple[int, ...] = ()
    for field_number, value in fields(message):
        if field_number == 2:
            shape = _shape(as_bytes(value))
        elif field_number == 7:
            values[7] += 1
        else:
            values[field_number] = as_number(value)
    return BundleEntry(
        type=values[1],
        shape=shape,
        shard=values[3],
        offset=values[4],
        size=values[5],
        checksum=values[6],
        slices=values[7],
    )


def _shape(message: bytes) -> tuple[int, ...]:
    """Parse a TensorShapeProto: 2 dim, each with 1 size."""
    dimensions = [dict(fields(as_bytes(value))) for field_number, value in fields(message) if field_number == 2]
    return tuple(as_number(dimension.get(1, 0)) for dimension in dimensions)
