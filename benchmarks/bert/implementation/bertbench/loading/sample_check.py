"""Check samples when they are read: a shard may have been damaged since `data verify`.

The check is cheap and finds samples that no model could train on: sizes unlike the index, ids beyond the vocabulary,
positions beyond the sample. It doesn't find a wrong but valid token; checksums do (`data verify`).
"""

import sys
from typing import Self

import numpy as np
from numpy.typing import NDArray

from bertbench.common.errors import DataError
from bertbench.data.store.columns import Columns
from bertbench.data.store.dataset import Dataset
from bertbench.data.store.index import entries_of, lengths_of, masked_of
from bertbench.data.store.manifest import Manifest
from bertbench.loading.options import OnBadSample
from bertbench.model.loss import IGNORED

_WARNINGS = 5


class SampleCheck:
    """Check the samples of a dataset that one rank reads."""

    def __init__(self, dataset: Dataset, vocab_size: int, on_bad: OnBadSample = "fail", rank: int = 0) -> None:
        self._dataset = dataset
        self._entries_N = np.asarray(dataset.entries_N)  # the same memory without memmap's cost on every access
        self._vocab_size = vocab_size
        self._on_bad = on_bad
        self._rank = rank
        self.skipped = 0
        """Samples left out so far."""

    @classmethod
    def of(cls, dataset: Dataset, on_bad: OnBadSample = "fail", rank: int = 0) -> Self:
        """Return a check against the vocabulary of the dataset's manifest."""
        return cls(dataset, Manifest.read(dataset.folder).tokenizer.vocab_size, on_bad, rank)

    def ensured(self, ids: NDArray[np.int64], content: Columns) -> Columns:
        """Return the samples of these ids as they were read, if they are valid.

        Otherwise raise DataError that names the shard and the sample. With `skip`, instead replace each bad sample by
        one of the same size with ignored labels: it takes the same time and has no weight in the loss.
        """
        entries = self._entries_N[ids]
        if (entries_of(content.lengths, content.masked) == entries).all() and not content.problem(self._vocab_size):
            return content
        lengths, masked = lengths_of(entries).tolist(), masked_of(entries).tolist()
        samples = [content.take(np.array([row])) for row in range(len(content))]
        for row, promised in enumerate(zip(lengths, masked, strict=True)):
            if problem := self._problem(samples[row], promised):
                self._leave_out(int(ids[row]), problem)
                samples[row] = _weightless(*promised)
        return Columns.joined(samples)

    def _problem(self, sample: Columns, promised: tuple[int, int]) -> str | None:
        found = int(sample.lengths[0]), int(sample.masked[0])
        if found != promised:
            return f"{found[0]} tokens, {found[1]} masked, where the index promises {promised[0]}, {promised[1]}"
        problem = sample.problem(self._vocab_size)
        return problem and problem[1]

    def _leave_out(self, sample: int, problem: str) -> None:
        """Raise DataError for a bad sample, or warn of it and count it."""
        folder, shards = self._dataset.folder, self._dataset.split.shards
        ends = np.cumsum([shard.samples for shard in shards])
        number = int(np.searchsorted(ends, sample, side="right"))
        place = sample - ends[number] + shards[number].samples
        text = f"{folder / self._dataset.name / shards[number].name}: sample {place}: found {problem}"
        if self._on_bad == "fail":
            raise DataError(
                f"{text}; see `bertbench data verify {folder}` and prepare the data again, or leave such samples out "
                "with --on-bad-sample skip"
            )
        self.skipped += 1
        if self.skipped <= _WARNINGS:
            more = "; further ones are only counted" if self.skipped == _WARNINGS else ""
            print(f"warning: rank {self._rank}: {text}; left out{more}", file=sys.stderr, flush=True)


def _weightless(length: int, masked: int) -> Columns:
    return Columns(
        lengths=np.array([length]),
        masked=np.array([masked]),
        input_ids=np.zeros(length, np.int16),
        segment_ids=np.zeros(length, np.int8),
        masked_lm_positions=np.zeros(masked, np.int16),
        masked_lm_ids=np.full(masked, IGNORED, np.int16),
        next_sentence_labels=np.full(1, IGNORED, np.int8),
    )
