"""`bertbench data show`: summarise a dataset from its manifest and index alone, in seconds for any size."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bertbench.data.store.columns import lengths_of
from bertbench.data.store.dataset import Dataset
from bertbench.data.store.manifest import Manifest

_BARS = 16  # each for 32 tokens at MLPerf's length
_BAR_WIDTH = 40


def summarize(folder: Path) -> dict[str, Any]:
    """Return the numbers of a dataset, as `--json` prints them; `documents` is None for converted samples.

    Raises DataError if there is no complete dataset.
    """
    manifest = Manifest.read(folder)
    return {
        "path": str(folder),
        "vocab_size": manifest.tokenizer.vocab_size,
        "documents": manifest.documents,
        "best_constant_guess": manifest.most_frequent_token,
        "splits": {name: _split(Dataset.open(folder, name)) for name in manifest.splits()},
    }


def drawn(summary: dict[str, Any]) -> str:
    """Return the summary for a terminal, with a histogram of lengths per split."""
    documents = _number(summary["documents"], "document") if summary["documents"] else "documents not counted"
    lines = [f"{summary['path']}: vocabulary of {summary['vocab_size']:,}, {documents}"]
    for name, split in summary["splits"].items():
        lines += [
            "",
            f"{name}: {_number(split['samples'], 'sample')} in {_number(split['shards'], 'shard')}, "
            f"{split['tokens']:,} tokens",
            f"  lengths {split['shortest']} to {split['longest']}, mean {split['mean_length']:.1f}; "
            f"padded to {split['longest']}, {split['padding_fraction']:.1%} of a batch would be padding",
            f"  masked {split['masked_tokens']:,} tokens, {split['masked_share']:.1%} of all",
            *_bars(split),
        ]
    guess = summary["best_constant_guess"]
    if guess:
        best_guess = f"best constant guess on eval: {guess.token!r}, accuracy {guess.accuracy:.4f}"
    else:
        best_guess = "best constant guess: unknown without evaluation samples"
    lines += ["", best_guess]
    return "\n".join(lines)


def _split(dataset: Dataset) -> dict[str, Any]:
    """Return the numbers of a split; the histogram counts samples of 1 to bin_width tokens, up to twice that, ..."""
    counts = np.zeros(1 << 10, np.int64)  # of each length, from 0 on
    for first in range(0, len(dataset), 1 << 20):  # in blocks, as MLPerf's index has 157 million entries
        counts += np.bincount(lengths_of(dataset.entries_N[first : first + (1 << 20)]), minlength=len(counts))
    present = np.flatnonzero(counts)
    shortest = int(present[0])
    longest = int(present[-1])
    bin_width = -(-longest // _BARS)
    bins = np.concatenate((counts[1 : longest + 1], np.zeros(-longest % bin_width, np.int64))).reshape(-1, bin_width)
    split = dataset.split
    return {
        "samples": split.samples,
        "shards": len(split.shards),
        "tokens": split.tokens,
        "masked_tokens": split.masked_tokens,
        "shortest": shortest,
        "longest": longest,
        "mean_length": split.tokens / split.samples,
        "masked_share": split.masked_tokens / split.tokens,
        "padding_fraction": 1 - split.tokens / (split.samples * longest),  # if every sample were padded to the longest
        "bin_width": bin_width,
        "histogram": bins.sum(axis=1).tolist(),
    }


def _number(count: int, name: str) -> str:
    return f"{count:,} {name}{'' if count == 1 else 's'}"


def _bars(split: dict[str, Any]) -> Iterator[str]:
    """Yield a bar for each bin that has samples."""
    width = split["bin_width"]
    for number, samples in enumerate(split["histogram"]):
        if not samples:
            continue
        bar = "█" * round(_BAR_WIDTH * samples / max(split["histogram"]))
        first = number * width + 1
        last = (number + 1) * width
        share = samples / split["samples"]
        yield f"  {first:>4} to {last:>3}  {samples:>11,}  {share:>6.1%}  {bar}".rstrip()
