"""`bertbench data show`: summarise a dataset from its manifest and index alone, in seconds for any size."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bertbench.data.store.dataset import Dataset, SplitName
from bertbench.data.store.manifest import Guess, Manifest

_BARS = 16  # of 32 tokens at MLPerf's length
_BAR_WIDTH = 40
_BLOCKS = " ▏▎▍▌▋▊▉"  # eighths of a character


@dataclass(frozen=True)
class SplitSummary:
    """Numbers of one split."""

    samples: int
    shards: int
    tokens: int
    masked_tokens: int
    shortest: int
    longest: int
    mean_length: float
    masked_share: float
    """Masked tokens of all tokens."""
    padding_fraction: float
    """Share of padding in a batch if every sample were padded to the longest."""
    bin_width: int
    histogram: tuple[int, ...]
    """Samples of 1 to bin_width tokens, of bin_width + 1 to 2 * bin_width, ..."""


@dataclass(frozen=True)
class Summary:
    """A whole dataset."""

    path: str
    vocab_size: int
    documents: int | None
    """None for converted samples."""
    best_constant_guess: Guess | None
    """Of the evaluation samples, if there are any."""
    splits: dict[str, SplitSummary]


def summarize(folder: Path) -> Summary:
    """Read the numbers. Raises DataError if there is no whole dataset."""
    manifest = Manifest.read(folder)
    names: tuple[SplitName, ...] = ("train", "eval")
    return Summary(
        path=str(folder),
        vocab_size=manifest.tokenizer.vocab_size,
        documents=manifest.documents,
        best_constant_guess=manifest.most_frequent_token,
        splits={name: _split(Dataset.open(folder, name)) for name in names if name in manifest.splits()},
    )


def drawn(summary: Summary) -> str:
    """Return the summary for a terminal, with a histogram of lengths per split."""
    documents = f"{summary.documents:,} documents" if summary.documents else "documents not counted"
    lines = [f"{summary.path}: vocabulary of {summary.vocab_size:,}, {documents}"]
    for name, split in summary.splits.items():
        lines += [
            "",
            f"{name}: {split.samples:,} samples in {split.shards:,} shards, {split.tokens:,} tokens",
            f"  lengths {split.shortest} to {split.longest}, mean {split.mean_length:.1f}; padded to {split.longest}, "
            f"{split.padding_fraction:.1%} of a batch would be padding",
            f"  masked {split.masked_tokens:,} tokens, {split.masked_share:.1%} of all",
            *_bars(split),
        ]
    guess = summary.best_constant_guess
    lines += ["", f"best constant guess on eval: {guess.token!r}, accuracy {guess.accuracy:.4f}" if guess else
              "best constant guess: unknown without evaluation samples"]  # fmt: skip
    return "\n".join(lines)


def _split(dataset: Dataset) -> SplitSummary:
    counts = _length_counts(dataset)
    present = np.flatnonzero(counts)
    shortest, longest = int(present[0]), int(present[-1])
    bin_width = -(-longest // _BARS)
    bins = np.concatenate((counts[1 : longest + 1], np.zeros(-longest % bin_width, np.int64))).reshape(-1, bin_width)
    split = dataset.split
    return SplitSummary(
        samples=split.samples,
        shards=len(split.shards),
        tokens=split.tokens,
        masked_tokens=split.masked_tokens,
        shortest=shortest,
        longest=longest,
        mean_length=split.tokens / split.samples,
        masked_share=split.masked_tokens / split.tokens,
        padding_fraction=1 - split.tokens / (split.samples * longest),
        bin_width=bin_width,
        histogram=tuple(bins.sum(axis=1).tolist()),
    )


def _length_counts(dataset: Dataset) -> NDArray[np.int64]:
    """Count the samples of each length, from 0 on; in blocks, as MLPerf's index has 157 million entries."""
    counts = np.zeros(1 << 10, np.int64)
    for first in range(0, len(dataset), 1 << 20):
        ids = np.arange(first, min(first + (1 << 20), len(dataset)))
        counts += np.bincount(dataset.lengths(ids), minlength=len(counts))
    return counts


def _bars(split: SplitSummary) -> list[str]:
    most = max(split.histogram)
    lines = []
    for number, samples in enumerate(split.histogram):
        first, last = number * split.bin_width + 1, (number + 1) * split.bin_width
        eighths = round(8 * _BAR_WIDTH * samples / most)
        bar = "█" * (eighths // 8) + _BLOCKS[eighths % 8].strip()
        lines.append(f"  {first:>4} to {last:>3}  {samples:>11,}  {samples / split.samples:>6.1%}  {bar}".rstrip())
    return lines
