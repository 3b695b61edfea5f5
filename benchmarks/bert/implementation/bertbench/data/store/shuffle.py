"""`data shuffle`: write all samples of a dataset in random order to new shards, in two sequential passes.

Published runs shuffle once, offline, at sample level. A keyed permutation maps a sample's number to its new place, so
every sample is written exactly once. Pass 1 reads the input in order and appends each sample to the bucket of its new
shard; pass 2 sorts each bucket and writes the shard. Neither pass needs more memory than a buffer or a shard takes.
"""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from bertbench import __version__
from bertbench.common.errors import DataError
from bertbench.common.progress import Progress
from bertbench.common.seeding import derive, permuted
from bertbench.common.system_faults import exists
from bertbench.data.store.columns import SAMPLE_FIELDS, Columns, Integers
from bertbench.data.store.dataset import Dataset, shard_blocks
from bertbench.data.store.manifest import MANIFEST_NAME, VOCAB_NAME, Manifest, existing, file_sha256
from bertbench.data.store.shards import check_place, unfinished, write_shards

BUFFER_BLOCKS = 64  # 200 MB of Wikipedia samples
SHARD_BYTES = 300_000_000  # held twice while a shard is sorted
_BUCKET_TYPES = {  # of the arrays in a bucket
    "places": np.dtype(np.int64),
    "lengths": np.dtype(np.int64),
    "masked": np.dtype(np.int64),
    **SAMPLE_FIELDS,
}


def shuffle(source: Path, out: Path, seed: int, shards: int, progress: Progress) -> tuple[Manifest, bool]:
    """Shuffle the training samples of `source` into `out` and copy its evaluation samples.

    Return its manifest and whether it was already there.

    Raises DataError if `out` holds something else, the input is damaged, shards would not fit into memory, or the
    disk is full.
    """
    check_place(out)
    dataset = Dataset.open(source, "train")
    manifest = Manifest.read(source)
    if not 1 <= shards <= len(dataset):
        raise DataError(f"--shards {shards}: expected 1 to {len(dataset):,}, the number of samples in {source}")
    bytes_per_shard = 3 * dataset.split.tokens // shards
    if bytes_per_shard > SHARD_BYTES:
        fewest = -(-3 * dataset.split.tokens // SHARD_BYTES)
        raise DataError(
            f"--shards {shards}: a shard would take {bytes_per_shard / 1e6:,.0f} MB; give at least {fewest}"
        )
    request: dict[str, Any] = {
        "recipe": {"name": "shuffle", "seed": seed, "shards": shards, "splits": list(manifest.splits())},
        "source": {"manifest_sha256": file_sha256(source / MANIFEST_NAME)},
    }
    if exists(out, DataError):
        return existing(out, request), True
    with unfinished(out) as work:
        buckets = work / "buckets"
        buckets.mkdir()
        _scatter(dataset, buckets, shards, seed, progress)
        train = write_shards(work / "train", _gathered(buckets, shards, progress))
        shutil.rmtree(buckets)
        if manifest.eval is not None:
            (work / "eval").mkdir()
            for path in sorted((source / "eval").iterdir()):
                shutil.copyfile(path, work / "eval" / path.name)
        if exists(source / VOCAB_NAME, DataError):  # samples may be converted without one
            shutil.copyfile(source / VOCAB_NAME, work / VOCAB_NAME)
        shuffled = replace(manifest, request=request, tool_version=__version__, train=train)
        shuffled.write(work)
    return shuffled, False


def _scatter(dataset: Dataset, buckets: Path, count: int, seed: int, progress: Progress) -> None:
    """Append every sample to the bucket of its new shard, with its new place: pass 1."""
    blocks = chain.from_iterable(shard_blocks(dataset, number) for number in range(len(dataset.split.shards)))
    read = 0
    while buffered := list(islice(blocks, BUFFER_BLOCKS)):
        samples = Columns.joined(buffered)
        places = permuted(np.arange(read, read + len(samples)), len(dataset), derive(seed, "shuffle"))
        bucket_of = places * count // len(dataset)
        order = np.argsort(bucket_of, kind="stable")
        numbers, firsts = np.unique(bucket_of[order], return_index=True)
        for number, rows in zip(numbers.tolist(), np.split(order, firsts[1:]), strict=True):
            _append(buckets / str(number), places[rows], samples.take(rows))
        read += len(samples)
        del samples  # free them before the next ones are joined
        progress.update(read, len(dataset), f"{read:,} of {len(dataset):,} samples read")


def _append(bucket: Path, places: Integers, samples: Columns) -> None:
    """Append samples with their places: the sizes of all arrays, then the arrays."""
    arrays = {"places": places, **vars(samples)}
    sizes = np.array([len(arrays[name]) for name in _BUCKET_TYPES])
    with bucket.open("ab") as file:
        sizes.tofile(file)
        for name in _BUCKET_TYPES:
            arrays[name].tofile(file)


def _gathered(buckets: Path, count: int, progress: Progress) -> Iterator[Columns]:
    """Yield the samples of each bucket in the order of their places: pass 2."""
    for number in range(count):
        blocks = []
        places = []
        with (buckets / str(number)).open("rb") as file:
            while len(sizes := np.fromfile(file, np.int64, len(_BUCKET_TYPES))):
                arrays = {}
                for (name, dtype), size in zip(_BUCKET_TYPES.items(), sizes.tolist(), strict=True):
                    arrays[name] = np.fromfile(file, dtype, size)
                places.append(arrays.pop("places"))
                blocks.append(Columns(**arrays))
        yield Columns.joined(blocks).take(np.argsort(np.concatenate(places)))
        progress.update(number + 1, count, f"shard {number + 1:,} of {count:,} written")
