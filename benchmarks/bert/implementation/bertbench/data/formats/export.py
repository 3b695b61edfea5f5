"""`bertbench data export`: write a prepared split as HDF5, a file per shard, or compute its TFRecords' sizes."""

from itertools import chain
from pathlib import Path

from bertbench.common.errors import DataError
from bertbench.common.progress import Progress
from bertbench.common.system_faults import exists
from bertbench.data.formats.hdf5_layouts import write_varlength
from bertbench.data.formats.tfrecord import MAX_PREDICTIONS, record_bytes
from bertbench.data.mlcommons.reference_tfrecords import ReferenceFile, reference_files
from bertbench.data.store.dataset import Dataset, shard_blocks
from bertbench.data.store.manifest import Manifest
from bertbench.data.store.shards import unfinished

LAYOUTS = ("varlength", "tfrecord")


def export_hdf5(dataset: Dataset, out: Path, progress: Progress) -> int:
    """Write a split to the new folder `out`, as part_00000_of_00002.hdf5 and so on; return the number of files.

    Raises DataError if `out` exists.
    """
    if exists(out, DataError):
        raise DataError(f"{out}: exists already; give another --out, or remove it first")
    shards = dataset.split.shards
    with unfinished(out) as folder:
        for number, shard in enumerate(shards):
            path = folder / f"part_{number:05d}_of_{len(shards):05d}.hdf5"
            write_varlength(path, shard.samples, shard_blocks(dataset, number))
            progress.update(number + 1, len(shards), f"{number + 1} of {len(shards)} files")
    return len(shards)


def tfrecords(dataset: Dataset, progress: Progress) -> list[ReferenceFile]:
    """Return the TFRecords that the reference would make of a split's samples.

    Raises DataError for a sample with more masked tokens than the layout holds.
    """
    names_and_shards = reference_files(Manifest.read(dataset.folder), dataset.name)
    files = []
    for number, (name, shards) in enumerate(names_and_shards, start=1):
        size = 0
        for block in chain.from_iterable(shard_blocks(dataset, shard) for shard in shards):
            if (most := block.masked.max()) > MAX_PREDICTIONS:
                raise DataError(
                    f"{dataset.folder}: found a sample with {most} masked tokens, but TFRecords hold at most "
                    f"{MAX_PREDICTIONS}; export --layout varlength"
                )
            size += int(record_bytes(block).sum())
        samples = sum(dataset.split.shards[shard].samples for shard in shards)
        files.append(ReferenceFile(name, samples, size))
        progress.update(number, len(names_and_shards), f"{number} of {len(names_and_shards)} files")
    return files
