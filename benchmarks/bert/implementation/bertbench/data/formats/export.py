"""`bertbench data export`: write a prepared split as HDF5, a file per shard, or compute its TFRecords' sizes."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bertbench.common.errors import DataError
from bertbench.common.progress import Progress
from bertbench.data.formats.hdf5_write import write_varlength
from bertbench.data.formats.reference_files import ReferenceFile, reference_files
from bertbench.data.formats.tfrecord_size import MAX_PREDICTIONS, record_bytes
from bertbench.data.store.columns import Columns
from bertbench.data.store.dataset import Dataset, shard_blocks
from bertbench.data.store.manifest import Manifest
from bertbench.data.store.shards import unfinished

LAYOUTS = ("varlength", "tfrecord")


def export(dataset: Dataset, out: Path, progress: Progress) -> int:
    """Write a split to the new folder `out`, as part_00000_of_00002.hdf5 and so on; return the number of files.

    Raises DataError if `out` exists, or for a sample that the layouts can't hold.
    """
    if out.exists():
        raise DataError(f"{out}: exists already; give another --out, or remove it first")
    shards = dataset.split.shards
    with unfinished(out) as folder:
        for number, shard in enumerate(shards):
            path = folder / f"part_{number:05d}_of_{len(shards):05d}.hdf5"
            write_varlength(path, shard.samples, _blocks(dataset, (number,)))
            progress.update(number + 1, len(shards), f"{number + 1} of {len(shards)} files")
    return len(shards)


def tfrecords(dataset: Dataset, progress: Progress) -> list[ReferenceFile]:
    """Return the TFRecords that the reference would make of a split's samples.

    Raises DataError for a sample that the layout can't hold.
    """
    files, done = reference_files(Manifest.read(dataset.folder), dataset.name), []
    for number, (name, shards) in enumerate(files, start=1):
        size = sum(int(record_bytes(block).sum()) for block in _blocks(dataset, shards))
        done.append(ReferenceFile(name, sum(dataset.split.shards[shard].samples for shard in shards), size))
        progress.update(number, len(files), f"{number} of {len(files)} files")
    return done


def _blocks(dataset: Dataset, shards: tuple[int, ...]) -> Iterator[Columns]:
    for number in shards:
        where = dataset.folder / dataset.name / dataset.split.shards[number].name
        for block in shard_blocks(dataset, number):
            if problem := _problem(block):
                raise DataError(f"{where}: found {problem}; prepare the data again")
            yield block


def _problem(block: Columns) -> str | None:
    """Return why layouts that pad with 0 can't hold a block's samples; None if they can."""
    if (block.masked > MAX_PREDICTIONS).any():
        return f"a sample with {block.masked.max()} masked tokens, expected at most {MAX_PREDICTIONS}"
    if not np.all(block.masked_lm_positions):
        return "a masked position 0, which means padding in the published layouts, expected none: [CLS] is never masked"
    found = block.problem(1 << 15)  # any vocabulary that 16 bits hold
    return found and f"{found[1]}, expected none"
