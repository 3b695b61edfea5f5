"""`lab loader`: compare the rates at which our loader and Hugging Face datasets fill unpadded batches, on one core.

All readers load the same samples, which have Wikipedia's lengths, in the same order, into the same `Batch`. Medians
count.
"""

import argparse
import importlib.util
import statistics
import time
from collections.abc import Callable
from functools import partial
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from bertbench.balance.random_samples import VOCABULARY, draw_lengths, samples_of_lengths
from bertbench.common.progress import Progress
from bertbench.common.seeding import permuted
from bertbench.common.tables import table_lines
from bertbench.data.store.columns import Columns, Integers
from bertbench.data.store.dataset import Dataset
from bertbench.data.store.shards import write_split
from bertbench.loading.batch import SampleCheck, batch_of, gather
from bertbench.machine.processor import processor
from lab.bench.harness import BenchResult, alternate, command

_BATCH = 48
SAMPLES = 40_000  # 31 MB
_SHARDS = 8
_ROUNDS = 3
ROUND_S = 2.0
_FIELDS = ("input_ids", "segment_ids", "masked_lm_positions", "masked_lm_ids")

Ids = Integers
Reader = Callable[[Ids], object]


def measure(arguments: argparse.Namespace, progress: Progress) -> BenchResult:
    """Write the samples in every format, then read them."""
    with TemporaryDirectory() as folder:
        rates = _rates(Path(folder), arguments.seed, progress)
    columns = {"reader": "{0[name]}", "samples/s": "{0[samples_per_s]:,.0f}"}
    head = f"samples/s into unpadded batches of {_BATCH} drawn at random, one core of {processor()}"
    return BenchResult(rates, [head, *table_lines(rates, columns)])


def _rates(folder: Path, seed: int, progress: Progress) -> list[dict[str, Any]]:
    """Read every format in interleaved rounds; report and skip a baseline that isn't installed."""
    torch.set_num_threads(1)
    content = samples_of_lengths(draw_lengths(SAMPLES, seed), seed)
    split = write_split(folder / "train", content.split(8_192), -(-SAMPLES // _SHARDS))
    dataset = Dataset(folder, "train", split, np.load(folder / "train" / "index.npy", mmap_mode="r"))
    mapped, check = dataset.map_samples(), SampleCheck(dataset, VOCABULARY)
    readers: dict[str, Reader] = {
        "bertbench": lambda ids: gather(mapped, ids, dataset.lengths(ids), check),
    }
    if importlib.util.find_spec("datasets"):
        progress.message("writing Arrow for Hugging Face datasets")
        readers["datasets"] = arrow_reader(content)
    else:
        progress.message("Hugging Face datasets is not installed (`make setup` installs it): skipped")
    ids = permuted(np.arange(SAMPLES), SAMPLES, seed)
    rates = alternate(
        {name: partial(_rate, reader, ids) for name, reader in readers.items()}, _ROUNDS, progress=progress
    )
    return [{"name": name, "samples_per_s": statistics.median(values)} for name, values in rates.items()]


def _rate(reader: Reader, ids: Ids, _: int) -> float:
    """Read whole batches for `ROUND_S` seconds; return the samples per second."""
    in_batches = len(ids) // _BATCH * _BATCH
    done = 0
    seconds = 0.0
    began = time.perf_counter()
    for batch in cycle(ids[:in_batches].reshape(-1, _BATCH)):
        reader(batch)
        done += _BATCH
        seconds = time.perf_counter() - began
        if seconds >= ROUND_S:
            break
    return done / seconds


def arrow_reader(content: Columns) -> Reader:
    """Return a reader of Hugging Face datasets in Arrow, which reads a batch of rows at a time as numpy."""
    from datasets import Dataset as ArrowDataset  # noqa: PLC0415 - an optional baseline

    tokens, masked = np.cumsum(content.lengths)[:-1], np.cumsum(content.masked)[:-1]
    ends = zip(_FIELDS, (tokens, tokens, masked, masked), strict=True)
    split = {name: np.split(getattr(content, name), at) for name, at in ends}
    table = ArrowDataset.from_dict({**split, "next_sentence_labels": content.next_sentence_labels})
    table = table.with_format("numpy")

    def read(ids: Ids) -> object:
        rows = table[ids.tolist()]
        lengths = np.array([len(row) for row in rows["input_ids"]])
        order = np.argsort(-lengths, kind="stable")

        def in_order(name: str) -> Any:
            return np.concatenate([rows[name][row] for row in order])

        return batch_of(
            Columns(
                lengths=lengths[order],
                masked=np.array([len(row) for row in rows["masked_lm_ids"]])[order],
                next_sentence_labels=np.array(rows["next_sentence_labels"], np.int8)[order],
                **{name: in_order(name) for name in _FIELDS},
            )
        )

    return read


add_arguments, run = command(measure, seeds="lengths, tokens and order")
