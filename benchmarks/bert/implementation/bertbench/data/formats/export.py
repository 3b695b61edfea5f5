"""`bertbench data export`: write a prepared split in a published layout.

HDF5 gets one file per shard, TFRecords one per text, as in the reference.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import numpy as np

from bertbench.common.errors import DataError
from bertbench.common.progress import Progress
from bertbench.data.formats.hdf5_write import write_varlength
from bertbench.data.formats.reference_files import OutFile, Written, reference_files
from bertbench.data.formats.tfrecord_write import MAX_PREDICTIONS, record_bytes, write_tfrecord
from bertbench.data.store.columns import Columns
from bertbench.data.store.dataset import Dataset, shard_blocks
from bertbench.data.store.manifest import Manifest
from bertbench.data.store.shards import unfinished

Layout = Literal["varlength", "tfrecord"]
LAYOUTS: tuple[Layout, ...] = get_args(Layout)


class Exported(NamedTuple):
    """The size of an export."""

    files: int
    samples: int
    rows: int
    """As many as samples: every sample is a row."""


def export(dataset: Dataset, out: Path, progress: Progress) -> Exported:
    """Write a split to the new folder `out`, as part_00000_of_00002.hdf5 and so on.

    Raises DataError if `out` exists, or for a sample that the layouts can't hold.
    """
    shards, samples = dataset.split.shards, dataset.split.samples
    with _new_folder(out) as folder:
        for number, shard in enumerate(shards):
            path = folder / f"part_{number:05d}_of_{len(shards):05d}.hdf5"
            write_varlength(path, shard.samples, _blocks(dataset, (number,)))
            progress.update(number + 1, len(shards), f"{number + 1} of {len(shards)} files")
    return Exported(len(shards), samples, samples)


def export_tfrecords(dataset: Dataset, out: Path, progress: Progress) -> list[Written]:
    """Write a split to the new folder `out` as the reference's TFRecords, one a text.

    Raises DataError if `out` exists, or for a sample that the layout can't hold.
    """
    with _new_folder(out) as folder:

        def written(file: OutFile) -> int:
            write_tfrecord(folder / file.name, _blocks(dataset, file.shards))
            return (folder / file.name).stat().st_size

        return _each_file(dataset, written, progress)


def tfrecord_sizes(dataset: Dataset, progress: Progress) -> list[Written]:
    """Compute the sizes of the files that `export_tfrecords` would write; nothing is written.

    Raises DataError for a sample that the layout can't hold.
    """

    def computed(file: OutFile) -> int:
        return sum(int(record_bytes(block).sum()) for block in _blocks(dataset, file.shards))

    return _each_file(dataset, computed, progress)


def _each_file(dataset: Dataset, size: Callable[[OutFile], int], progress: Progress) -> list[Written]:
    files, done = reference_files(Manifest.read(dataset.folder), dataset.name), []
    for number, file in enumerate(files, start=1):
        samples = sum(dataset.split.shards[shard].samples for shard in file.shards)
        done.append(Written(file.name, samples, size(file)))
        progress.update(number, len(files), f"{number} of {len(files)} files")
    return done


def _new_folder(out: Path) -> AbstractContextManager[Path]:
    if out.exists():
        raise DataError(f"{out}: exists already; give another --out, or remove it first")
    return unfinished(out)


def _blocks(dataset: Dataset, shards: tuple[int, ...]) -> Iterator[Columns]:
    for number in shards:
        where = dataset.folder / dataset.name / dataset.split.shards[number].name
        for block in shard_blocks(dataset, number):
            yield _fitting(where, block)


def _fitting(path: Path, block: Columns) -> Columns:
    """Return the block if a layout that pads with 0 can hold it, else raise DataError."""
    if (block.masked > MAX_PREDICTIONS).any():
        raise DataError(
            f"{path}: found a sample with {block.masked.max()} masked tokens, published rows hold {MAX_PREDICTIONS}; "
            "prepare the data with at most that many"
        )
    if not np.all(block.masked_lm_positions):
        raise DataError(
            f"{path}: found a masked position 0, which means padding in the published layouts; expected none, [CLS] is "
            "never masked; prepare the data again"
        )
    for name in ("input_ids", "segment_ids", "masked_lm_positions", "masked_lm_ids", "next_sentence_labels"):
        if (getattr(block, name) < 0).any():
            raise DataError(f"{path}: found a negative number in {name}, expected none; prepare the data again")
    return block
