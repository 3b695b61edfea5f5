"""`lab data`: compare the rates at which ours and the usual readers fill unpadded batches, on one core.

All readers load the same samples, of Wikipedia's lengths, in the same order, into the same `Batch`; medians count.
"""

import argparse
import importlib.util
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import h5py
import numpy as np
import torch
from numpy.typing import NDArray

from bertbench.common.errors import ConfigError
from bertbench.common.progress import Progress
from bertbench.common.seeding import permuted
from bertbench.data.store.columns import Columns
from bertbench.data.store.dataset import Dataset
from bertbench.data.store.shards import write_split
from bertbench.loading.batch import SampleCheck, batch_of, gather
from bertbench.loading.random_samples import VOCABULARY, wikipedia_like
from bertbench.machine.processor import processor
from lab.bench.harness import Found, command, in_turns, table

_BATCH = 48
_FEWEST = 10 * _BATCH
_SHARDS = 8
_ROUNDS = 3
_ROUND_S = 2.0
_FIELDS = ("input_ids", "segment_ids", "masked_lm_positions", "masked_lm_ids")

Ids = NDArray[np.int64]
Reader = Callable[[Ids], object]


@dataclass(frozen=True)
class Rate:
    """The rate of one reader: `order` is planned (random) or file, `cache` is warm or cold."""

    name: str
    order: str
    cache: str
    samples_per_s: float


def measure(arguments: argparse.Namespace, progress: Progress) -> Found:
    """Write the samples in every format, then read them."""
    if arguments.samples < _FEWEST:
        raise ConfigError(f"--samples {arguments.samples}: expected at least {_FEWEST}, ten batches")
    with TemporaryDirectory() as folder:
        rates = _rates(Path(folder), arguments.samples, arguments.seed, progress)
    columns = {"reader": "{0.name}", "order": "{0.order}", "cache": "{0.cache}", "samples/s": "{0.samples_per_s:,.0f}"}
    head = f"samples/s into unpadded batches of {_BATCH}, one core of {processor()}"
    machine = {"processor": processor(), "cores_used": 1}
    return Found({"machine": machine, "results": rates}, [head, *table(rates, columns)])


def _rates(folder: Path, samples: int, seed: int, progress: Progress) -> list[Rate]:
    """Read every format in turns, then ours once from disk; report a missing rival and skip it."""
    torch.set_num_threads(1)
    content = wikipedia_like(samples, seed)
    split = write_split(folder / "train", content.split(8_192), -(-samples // _SHARDS))
    dataset = Dataset(folder, "train", split, np.load(folder / "train" / "index.npy", mmap_mode="r"))
    mapped, check = dataset.map_samples(), SampleCheck(dataset, VOCABULARY)

    def ours(ids: Ids) -> object:
        return gather(mapped, ids, dataset.lengths(ids), check)

    orders = {"planned": permuted(np.arange(samples), samples, seed), "file": np.arange(samples)}
    readers: dict[tuple[str, str], Reader] = {("bertbench", order): ours for order in orders}
    readers["h5py rows", "planned"] = _h5py_rows(folder / "varlength.hdf5", content)
    if importlib.util.find_spec("datasets"):
        progress.message("writing Arrow for Hugging Face datasets")
        readers |= dict.fromkeys((("datasets", order) for order in orders), _arrow(content))
    else:
        progress.message("Hugging Face datasets is not installed (`make setup` installs it): skipped")

    def rate(reader: Reader, order: str, _: int) -> float:
        return _rate(reader, orders[order], _ROUND_S)

    arms = {(name, order): partial(rate, reader, order) for (name, order), reader in readers.items()}
    found = in_turns(arms, _ROUNDS, progress=progress)
    rates = [Rate(*name, "warm", statistics.median(values)) for name, values in found.items()]
    for path in (folder / "train").glob("*.h5"):
        with path.open("rb") as file:
            os.fsync(file.fileno())  # the system's cache drops only pages that are on disk
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return [*rates, Rate("bertbench", "planned", "cold", _rate(ours, orders["planned"], limit_s=60.0, once=True))]


def _rate(reader: Reader, ids: Ids, limit_s: float, once: bool = False) -> float:
    """Return samples a second over whole batches for `limit_s` seconds; `once` reads no sample twice."""
    batches, done, began = ids[: len(ids) // _BATCH * _BATCH].reshape(-1, _BATCH), 0, time.perf_counter()
    for batch in batches if once else cycle(batches):
        reader(batch)
        done += _BATCH
        seconds = time.perf_counter() - began
        if seconds >= limit_s:
            break
    return done / seconds


def _rows(content: Columns) -> dict[str, list[NDArray[np.integer]]]:
    tokens, masked = np.cumsum(content.lengths)[:-1], np.cumsum(content.masked)[:-1]
    return {name: np.split(getattr(content, name), tokens if name in _FIELDS[:2] else masked) for name in _FIELDS}


def _batch_of(rows: dict[str, list[Any]], labels: list[int]) -> object:
    """Build our Batch from rows in memory."""
    lengths = np.array([len(row) for row in rows["input_ids"]])
    order = np.argsort(-lengths, kind="stable").tolist()
    ordered = {name: [fields[row] for row in order] for name, fields in rows.items()}
    return batch_of(
        Columns(
            lengths=lengths[order],
            masked=np.array([len(row) for row in ordered["masked_lm_ids"]]),
            next_sentence_labels=np.array(labels, np.int8)[order],
            **{name: np.concatenate(fields) for name, fields in ordered.items()},
        )
    )


def _h5py_rows(path: Path, content: Columns) -> Reader:
    """Read the published variable-length layout row by row, like published loaders."""
    with h5py.File(path, "w") as file:
        for name, rows in _rows(content).items():
            kind = h5py.vlen_dtype(np.int8 if name == "segment_ids" else np.int16)
            stored = file.create_dataset(name, len(content), kind)
            for number, row in enumerate(rows):
                stored[number] = row
        file["next_sentence_labels"] = content.next_sentence_labels
    opened = h5py.File(path)

    def read(ids: Ids) -> object:
        rows = {name: [opened[name][number] for number in ids] for name in _FIELDS}
        return _batch_of(rows, [int(opened["next_sentence_labels"][number]) for number in ids])

    return read


def _arrow(content: Columns) -> Reader:
    """Read Hugging Face datasets over Arrow, a batch of rows at a time as numpy."""
    from datasets import Dataset as ArrowDataset  # noqa: PLC0415 - an optional rival

    table = ArrowDataset.from_dict({**_rows(content), "next_sentence_labels": content.next_sentence_labels})
    table = table.with_format("numpy")

    def read(ids: Ids) -> object:
        rows = table[ids.tolist()]
        return _batch_of({name: list(rows[name]) for name in _FIELDS}, rows["next_sentence_labels"].tolist())

    return read


add_arguments, run = command(
    measure, ("--samples", 40_000, "samples to make and read, 31 MB at the default"), seeds="lengths, tokens and order"
)
