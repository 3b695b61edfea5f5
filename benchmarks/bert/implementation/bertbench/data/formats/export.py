"""`bertbench data export`: a prepared split written in a published layout, one file a shard."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from bertbench.common.errors import DataError
from bertbench.common.progress import Progress
from bertbench.data.formats.hdf5_write import MAX_PREDICTIONS, WRITERS, Layout
from bertbench.data.store.columns import Columns
from bertbench.data.store.dataset import Dataset, shard_blocks
from bertbench.data.text.prepare import unfinished


class Exported(NamedTuple):
    """What was written."""

    files: int
    samples: int
    rows: int
    """Fewer than samples where rows are packed."""


def export(dataset: Dataset, layout: Layout, out: Path, progress: Progress) -> Exported:
    """Write a split to the new folder `out`, as part_00000_of_00002.hdf5 and so on.

    Raises DataError if `out` exists, or for a sample that the layouts can't hold.
    """
    if out.exists():
        raise DataError(f"{out}: found something there, expected nothing; give another --out, or remove it first")
    shards = dataset.split.shards
    samples = rows = 0
    with unfinished(out) as folder:
        for number, shard in enumerate(shards):
            path = folder / f"part_{number:05d}_of_{len(shards):05d}.hdf5"
            where = dataset.folder / dataset.name / shard.name
            blocks = (_fitting(where, block) for block in shard_blocks(dataset, number))
            rows += WRITERS[layout](path, shard.samples, blocks)
            samples += shard.samples
            progress.update(number + 1, len(shards), f"{number + 1} of {len(shards)} files, {samples:,} samples")
    return Exported(len(shards), samples, rows)


def _fitting(path: Path, block: Columns) -> Columns:
    """The same block, if a layout that pads with 0 can hold it."""
    if (block.masked > MAX_PREDICTIONS).any():
        raise DataError(
            f"{path}: found a sample with {block.masked.max()} masked tokens, published rows hold {MAX_PREDICTIONS}; "
            "prepare the data with at most as many"
        )
    if not np.all(block.masked_lm_positions):
        raise DataError(
            f"{path}: found a masked position 0, which means padding in the published layouts; expected none, [CLS] is "
            "never masked; prepare the data again"
        )
    return block
