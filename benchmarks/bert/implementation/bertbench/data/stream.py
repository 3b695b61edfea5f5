"""Read a prepared split in order, in bounded blocks: for what goes through all samples once.

A run reads samples by id instead (`data/batch.py`).
"""

from collections.abc import Iterator

import numpy as np

from bertbench.data.columns import Columns
from bertbench.data.dataset import Dataset, MappedShard

BLOCK_SAMPLES = 4096


def shard_blocks(dataset: Dataset, number: int) -> Iterator[Columns]:
    """The samples of one shard, mapped from it. Raises DataError if its fields are not what they should be."""
    shard = dataset.split.shards[number]
    mapped = MappedShard(dataset.folder / dataset.name / shard.name, shard.samples)
    for first in range(0, shard.samples, BLOCK_SAMPLES):
        yield mapped_block(mapped, first, min(first + BLOCK_SAMPLES, shard.samples))


def mapped_block(mapped: MappedShard, first: int, stop: int) -> Columns:
    """Samples `first` to `stop` - 1 of a shard."""
    tokens = slice(mapped.offsets[first], mapped.offsets[stop])
    masked = slice(mapped.masked_offsets[first], mapped.masked_offsets[stop])
    return Columns(
        lengths=np.diff(mapped.offsets[first : stop + 1]),
        masked=np.diff(mapped.masked_offsets[first : stop + 1]),
        input_ids=mapped.input_ids[tokens],
        segment_ids=mapped.segment_ids[tokens],
        masked_lm_positions=mapped.masked_lm_positions[masked],
        masked_lm_ids=mapped.masked_lm_ids[masked],
        next_sentence_labels=mapped.next_sentence_labels[first:stop],
    )
