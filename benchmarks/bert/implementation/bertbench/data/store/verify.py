"""`bertbench data verify`: check a dataset against its manifest, and its samples against another dataset.

It reads every byte: checksums of shards and index, counts, each sample's validity, and the digest of all samples
for `--against`. Shapes: N samples of a shard.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bertbench.common.errors import DataError, system_reason
from bertbench.common.progress import Progress
from bertbench.data.store.columns import INDEX_NAME, Columns, Index, pack
from bertbench.data.store.dataset import BLOCK_SAMPLES, MappedShard, read_index
from bertbench.data.store.manifest import MANIFEST_NAME, VOCAB_NAME, Manifest, ShardFile, Split, SplitName, file_sha256
from bertbench.data.store.multiset import SampleMultiset


class Verified(NamedTuple):
    """The result of a check."""

    problems: list[str]
    multisets: dict[SplitName, SampleMultiset]
    """Of the readable samples; complete only without problems."""


def verify(folder: Path, progress: Progress) -> Verified:
    """Check the whole dataset. Raises DataError only if there is no readable manifest."""
    manifest = Manifest.read(folder)
    problems, vocabulary, sha256 = list[str](), folder / VOCAB_NAME, manifest.tokenizer.sha256
    if sha256:  # samples may be converted without a vocabulary
        problems += _change(vocabulary, file_sha256(vocabulary) if vocabulary.exists() else "no such file", sha256)
    multisets: dict[SplitName, SampleMultiset] = {}
    for name, split in manifest.splits().items():
        multisets[name] = SampleMultiset()
        problems += _split_problems(folder / name, split, manifest.tokenizer.vocab_size, multisets[name], progress)
    if not multisets:
        problems.append(f"{folder}: found no split in {MANIFEST_NAME}, expected train or eval; prepare the data again")
    return Verified(problems, multisets)


def differences(folder: Path, one: Verified, other_folder: Path, other: Verified) -> list[str]:
    """Return one line per split whose samples differ between the datasets, in any order."""
    problems = [f"against {problem}" for problem in other.problems]
    for name in sorted(one.multisets.keys() | other.multisets.keys()):
        ours, theirs = (verified.multisets.get(name, SampleMultiset()) for verified in (one, other))
        if ours != theirs:
            problems.append(
                f"{folder}: found {ours.samples:,} {name} samples of digest {ours}, {other_folder} holds "
                f"{theirs.samples:,} of digest {theirs}; at least one sample differs"
            )
    return problems


def _split_problems(
    folder: Path, split: Split, vocab_size: int, found: SampleMultiset, progress: Progress
) -> Iterator[str]:
    entries = np.empty(0, np.uint16)
    try:
        entries = read_index(folder, split)
        yield from _change(folder / INDEX_NAME, file_sha256(folder / INDEX_NAME), split.index_sha256)
    except DataError as error:
        yield str(error)
    first = 0
    for number, shard in enumerate(split.shards, start=1):
        path = folder / shard.name
        try:
            yield from _change(path, file_sha256(path), shard.sha256)
            yield from _sample_problems(path, shard, entries[first:], vocab_size, found)
        except (DataError, OSError) as error:
            yield str(error) if isinstance(error, DataError) else f"{path}: cannot be read ({system_reason(error)})"
        first += shard.samples
        progress.update(number, len(split.shards), f"{folder.name}: {number} of {len(split.shards)} shards")
    for name, count, expected in (
        ("samples read", found.samples, split.samples),
        ("tokens", found.tokens, split.tokens),
        ("masked tokens", found.masked, split.masked_tokens),
    ):
        if count != expected:
            yield f"{folder}: found {count:,} {name}, the manifest says {expected:,}; prepare the data again"
    known = {shard.name for shard in split.shards} | {INDEX_NAME}
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.name not in known:
            yield f"{path}: found a file that the manifest doesn't list; remove it, or prepare the data again"


def _sample_problems(
    path: Path, shard: ShardFile, promised: Index, vocab_size: int, found: SampleMultiset
) -> Iterator[str]:
    """Yield the first fault of a shard's samples, and count those before it. Raises DataError or OSError."""
    mapped = MappedShard(path, shard.samples)
    for name, offsets in (("offsets", mapped.offsets), ("masked_offsets", mapped.masked_offsets)):
        if offsets[0] != 0 or (np.diff(offsets) < 0).any():
            yield f"{path}: {name}: found values that don't rise from 0; prepare the data again"
            return
    for number, block in enumerate(mapped.content().split(BLOCK_SAMPLES)):
        first = number * BLOCK_SAMPLES
        if problem := _block_problem(block, vocab_size, promised[first : first + len(block)]):
            sample, text = problem
            yield f"{path}: sample {first + sample}: found {text}; prepare the data again"
            return
        found.add(block)


def _block_problem(block: Columns, vocab_size: int, promised: Index) -> tuple[int, str] | None:
    problem = block.problem(vocab_size)
    if problem or len(promised) < len(block):  # without an index that holds them, which is a fault by itself
        return problem
    wrong = np.flatnonzero(pack(block.lengths, block.masked) != promised)
    return (int(wrong[0]), "another length or masked count than the index holds") if len(wrong) else None


def _change(path: Path, found: str, expected: str) -> list[str]:
    """Return the fault of a file whose checksum isn't the manifest's."""
    fault = f"{path}: found sha256 {found}, the manifest says {expected}; the file has changed, prepare the data again"
    return [] if found == expected else [fault]
