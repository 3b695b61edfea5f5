"""Read a prepared split in order, in bounded blocks: for what goes through all samples once.

A run reads samples by id instead (`loading/batch.py`).
"""

from collections.abc import Iterator

from bertbench.data.store.columns import Columns
from bertbench.data.store.dataset import Dataset, MappedShard

BLOCK_SAMPLES = 4096


def shard_blocks(dataset: Dataset, number: int, first: int = 0) -> Iterator[Columns]:
    """The samples of one shard, from number `first` on, mapped from it.

    Raises DataError if its fields are not what they should be.
    """
    shard = dataset.split.shards[number]
    mapped = MappedShard(dataset.folder / dataset.name / shard.name, shard.samples)
    yield from mapped.content().split(BLOCK_SAMPLES, first)
