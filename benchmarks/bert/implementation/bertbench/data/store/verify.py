"""`bertbench data verify`: check a dataset against its manifest.

It reads every byte: checksums of shards and index, counts, and each sample's validity. Shapes: N samples of a shard.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bertbench.common.errors import DataError
from bertbench.common.progress import Progress
from bertbench.common.system_faults import is_systems, unreadable
from bertbench.data.store.columns import INDEX_NAME, Columns, Index, InvalidSample, pack
from bertbench.data.store.dataset import BLOCK_SAMPLES, MappedShard, read_index
from bertbench.data.store.manifest import (
    AGAIN,
    MANIFEST_NAME,
    VOCAB_NAME,
    Manifest,
    ShardFile,
    Split,
    SplitName,
    file_sha256,
)

_RESTORE = f"copy it again from where the dataset came from, or {AGAIN}"


@dataclass
class Counts:
    """The valid samples that could be read of a split: all of them only if there are no problems."""

    samples: int = 0
    tokens: int = 0
    masked: int = 0


class Verified(NamedTuple):
    """The result of a check."""

    problems: list[str]
    counts: dict[SplitName, Counts]


def verify(folder: Path, progress: Progress) -> Verified:
    """Check the whole dataset. Raises DataError only if there is no readable manifest."""
    manifest = Manifest.read(folder)
    problems: list[str] = []
    if manifest.tokenizer.sha256:  # samples may be converted without a vocabulary
        vocabulary = folder / VOCAB_NAME
        try:
            problems += _change(vocabulary, manifest.tokenizer.sha256)
        except OSError as error:
            problems.append(unreadable(vocabulary, error, _RESTORE))
    counts: dict[SplitName, Counts] = {}
    for name, split in manifest.splits().items():
        counts[name] = Counts()
        problems += _split_problems(folder / name, split, manifest.tokenizer.vocab_size, counts[name], progress)
    if not counts:
        problems.append(f"{folder}: found no split in {MANIFEST_NAME}, expected train or eval; {AGAIN}")
    return Verified(problems, counts)


def _split_problems(folder: Path, split: Split, vocab_size: int, read: Counts, progress: Progress) -> Iterator[str]:
    """Yield the faults of a split, and add its samples to `read`."""
    entries = np.empty(0, np.uint16)
    try:
        entries = read_index(folder, split)
        yield from _change(folder / INDEX_NAME, split.index_sha256)
    except DataError as error:
        yield str(error)
    except OSError as error:
        yield unreadable(folder / INDEX_NAME, error, _RESTORE)
    first = 0
    has_unread = False  # a shard that the system can't read, whose samples are therefore not known
    for number, shard in enumerate(split.shards, start=1):
        path = folder / shard.name
        try:
            yield from _change(path, shard.sha256)
            yield from _sample_problems(path, shard, entries[first:], vocab_size, read)
        except OSError as error:
            has_unread = True
            yield unreadable(path, error, _RESTORE)
        except DataError as error:
            if is_systems(error.__cause__):
                has_unread = True
            yield str(error)
        first += shard.samples
        progress.update(number, len(split.shards), f"{folder.name}: {number} of {len(split.shards)} shards")
    for name, count, expected in (
        ("samples read", read.samples, split.samples),
        ("tokens", read.tokens, split.tokens),
        ("masked tokens", read.masked, split.masked_tokens),
    ):
        if count != expected and not has_unread:
            yield f"{folder}: found {count:,} {name}, the manifest says {expected:,}; {AGAIN}"
    known = {shard.name for shard in split.shards} | {INDEX_NAME}
    for path in _listed(folder):
        if path.name not in known:
            yield f"{path}: found a file that the manifest doesn't list; remove it"


def _listed(folder: Path) -> list[Path]:
    """Return a folder's files; none if it can't be listed, because they are reported as missing or unreadable then."""
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _sample_problems(path: Path, shard: ShardFile, entries: Index, vocab_size: int, read: Counts) -> Iterator[str]:
    """Yield the first fault of a shard's samples, and count those before it. Raises DataError or OSError."""
    mapped = MappedShard(path, shard.samples)
    for name, offsets in (("offsets", mapped.offsets), ("masked_offsets", mapped.masked_offsets)):
        if offsets[0] != 0 or (np.diff(offsets) < 0).any():
            yield f"{path}: {name}: found values that don't increase from 0; {AGAIN}"
            return
    for number, block in enumerate(mapped.content().split(BLOCK_SAMPLES)):
        first = number * BLOCK_SAMPLES
        if invalid := _first_invalid(block, vocab_size, entries[first : first + len(block)]):
            yield f"{path}: sample {first + invalid.number}: found {invalid.fault}; {AGAIN}"
            return
        read.samples += len(block)
        read.tokens += int(block.lengths.sum())
        read.masked += int(block.masked.sum())


def _first_invalid(block: Columns, vocab_size: int, entries: Index) -> InvalidSample | None:
    """Return the first sample that is invalid or differs from its index entry."""
    if invalid := block.problem(vocab_size):
        return invalid
    if len(entries) < len(block):  # the index is damaged, which is a fault by itself
        return None
    wrong = np.flatnonzero(pack(block.lengths, block.masked) != entries)
    if not len(wrong):
        return None
    return InvalidSample(int(wrong[0]), "a length or masked count that differs from the index")


def _change(path: Path, expected: str) -> list[str]:
    """Return the fault of a file whose checksum isn't the manifest's. Raises OSError if it can't be read."""
    sha256 = file_sha256(path)
    if sha256 == expected:
        return []
    return [f"{path}: found sha256 {sha256}, the manifest says {expected}; the file has changed, {AGAIN}"]
