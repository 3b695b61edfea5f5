"""`data shuffle`: write all samples of a dataset in random order to new shards, in two sequential passes.

Published runs shuffle once, offline, at sample level. A keyed permutation maps a sample's number to its new place, so
every sample is written exactly once, even after interruptions. Pass 1 reads the input in order and appends each sample
to the bucket of its new shard; pass 2 sorts each bucket and writes the shard. Memory is bounded by the buffer of pass 1
and by one shard; both passes resume after a stop.
"""

import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertbench import __version__
from bertbench.common.atomic import write_state
from bertbench.common.errors import DataError, system_reason
from bertbench.common.progress import Progress
from bertbench.common.seeding import derive
from bertbench.data.store.columns import Columns
from bertbench.data.store.dataset import Dataset, shard_blocks, shard_entries
from bertbench.data.store.manifest import MANIFEST_NAME, VOCAB_NAME, Manifest, ShardFile, existing
from bertbench.data.store.permutation import Permutation
from bertbench.data.store.shards import FIELDS, file_sha256, finish_split, write_shard

_BUFFER_SAMPLES = 262_144  # 200 MB of Wikipedia samples
_SHARD_BYTES = 300_000_000  # held twice while a shard is sorted
_TYPES = (*2 * [np.dtype(np.int64)], *list(FIELDS.values())[2:])  # of the fields of Columns, in a bucket


def shuffle(source: Path, out: Path, seed: int, shards: int, progress: Progress) -> tuple[Manifest, bool]:
    """Shuffle the training samples of `source` into `out` and copy its evaluation samples.

    Return its manifest and whether it was already there.

    Raises DataError if `out` holds something else, the input is damaged, shards would not fit into memory, or the
    disk is full. The same command then resumes from a hidden folder beside `out`.
    """
    dataset = Dataset.open(source, "train")
    manifest = Manifest.read(source)
    if not 1 <= shards <= len(dataset):
        raise DataError(f"--shards {shards}: expected 1 to {len(dataset):,}, the number of samples in {source}")
    bytes_per_shard = 3 * dataset.split.tokens // shards
    if bytes_per_shard > _SHARD_BYTES:
        fewest = -(-3 * dataset.split.tokens // _SHARD_BYTES)
        raise DataError(
            f"--shards {shards}: a shard would take {bytes_per_shard / 1e6:,.0f} MB; give at least {fewest}"
        )
    request: dict[str, Any] = {
        "recipe": {"name": "shuffle", "seed": seed, "shards": shards, "splits": list(manifest.splits())},
        "source": {"manifest_sha256": file_sha256(source / MANIFEST_NAME)},
    }
    if out.exists():
        return existing(out, request), True
    work = out.with_name(f".{out.name}.unfinished")
    try:
        buckets = _Buckets(work, request, shards)
        _scatter(dataset, buckets, seed, progress)
        finished = _gather(buckets, progress)
        shuffled = replace(
            manifest,
            request=request,
            tool_version=__version__,
            train=finish_split(work / "train", finished, shard_entries(work / "train", finished)),
        )
        buckets.remove()
        if manifest.eval is not None:
            shutil.copytree(source / "eval", work / "eval", dirs_exist_ok=True)
        shutil.copyfile(source / VOCAB_NAME, work / VOCAB_NAME)
        shuffled.write(work)
        work.replace(out)
    except OSError as error:
        raise DataError(
            f"{work}: {system_reason(error)}; finished parts are kept there; make room and run the same command again"
        ) from error
    return shuffled, False


class _Buckets:
    """Files of unordered samples, one per new shard, and the number of input samples in them."""

    def __init__(self, work: Path, request: dict[str, Any], count: int) -> None:
        self.work = work
        self.count = count
        self._state = work / "scattered.json"
        asked = json.loads(json.dumps(request))
        state = json.loads(self._state.read_text()) if self._state.exists() else None
        if state is None or state["request"] != asked:
            shutil.rmtree(work, ignore_errors=True)
            (work / "train").mkdir(parents=True)
            (work / "buckets").mkdir()
            state = {"request": asked, "samples": 0, "bytes": [0] * count}
        self.request = asked
        self.samples: int = state["samples"]
        self.bytes: list[int] = state["bytes"]

    def path(self, number: int) -> Path:
        return self.work / "buckets" / f"{number:05d}"

    def append(self, samples: Columns, places: NDArray[np.int64], total: int) -> None:
        """Add samples for these places; the state counts them only when all are on disk."""
        bucket_of = places * self.count // total
        order = np.argsort(bucket_of, kind="stable")
        numbers, firsts = np.unique(bucket_of[order], return_index=True)
        for number, rows in zip(numbers.tolist(), np.split(order, firsts[1:]), strict=True):
            with self.path(number).open("r+b" if self.path(number).exists() else "w+b") as file:
                file.truncate(self.bytes[number])  # drop what an interrupted run wrote after its last state
                file.seek(self.bytes[number])
                part = samples.take(rows)
                sizes = np.array([len(rows), len(part.input_ids), len(part.masked_lm_ids)])
                for array in (sizes, places[rows], *vars(part).values()):
                    array.tofile(file)
                self.bytes[number] = file.tell()
        self.samples += len(samples)
        write_state(self._state, {"request": self.request, "samples": self.samples, "bytes": self.bytes})

    def read(self, number: int) -> Columns:
        """Return all samples of a bucket in the order of their places."""
        blocks, places = [], []
        with self.path(number).open("rb") as file:
            while file.tell() < self.bytes[number]:
                samples, tokens, masked = np.fromfile(file, np.int64, 3).tolist()
                places.append(np.fromfile(file, np.int64, samples))
                sizes = (samples, samples, tokens, tokens, masked, masked, samples)
                stored = zip(_TYPES, sizes, strict=True)
                blocks.append(Columns(*(np.fromfile(file, dtype, size) for dtype, size in stored)))
        return Columns.joined(blocks).take(np.argsort(np.concatenate(places)))

    def remove(self) -> None:
        """Drop the buckets once every shard is written."""
        shutil.rmtree(self.work / "buckets")
        for path in self.work.glob("*.json"):
            path.unlink()


def _scatter(dataset: Dataset, buckets: _Buckets, seed: int, progress: Progress) -> None:
    """Append every sample to its bucket: pass 1."""
    permutation = Permutation(len(dataset), derive(seed, "shuffle"))
    waiting: list[Columns] = []
    start, stop = buckets.samples, 0
    for number, shard in enumerate(dataset.split.shards):
        first, stop = stop, stop + shard.samples
        if start >= stop:
            continue  # scattered before the restart
        for block in shard_blocks(dataset, number, max(0, start - first)):
            waiting.append(block)
            if sum(map(len, waiting)) >= _BUFFER_SAMPLES:
                _flush(waiting, buckets, permutation)
                progress.update(buckets.samples, len(dataset), f"{buckets.samples:,} of {len(dataset):,} samples read")
    if waiting:
        _flush(waiting, buckets, permutation)


def _flush(waiting: list[Columns], buckets: _Buckets, permutation: Permutation) -> None:
    samples = Columns.joined(waiting)
    waiting.clear()
    places = permutation(np.arange(buckets.samples, buckets.samples + len(samples)))
    buckets.append(samples, places, permutation.size)


def _gather(buckets: _Buckets, progress: Progress) -> list[ShardFile]:
    """Write every bucket in order as a shard, and keep finished shards: pass 2."""
    shards = []
    for number in range(buckets.count):
        path = buckets.work / "train" / f"part_{number:05d}.h5"
        finished = buckets.work / f"shard_{number:05d}.json"
        if not finished.exists():
            write_state(finished, asdict(write_shard(path, buckets.read(number))))
        shards.append(ShardFile(**json.loads(finished.read_text())))
        progress.update(number + 1, buckets.count, f"shard {number + 1:,} of {buckets.count:,} written")
    return shards
