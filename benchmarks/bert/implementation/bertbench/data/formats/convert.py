"""`bertbench data prepare --from-hdf5 | --from-tfrecord`: convert published samples to a dataset folder.

It reads the input twice: for checksums, which find a repeated file before hours are spent, then for the samples, in
blocks, so that one shard bounds the memory. A restart makes only the unfinished files (data/store/parts.py).
A second split joins a dataset that has the first one.
"""

import shutil
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bertbench.common.errors import DataError, system_reason
from bertbench.common.progress import Progress
from bertbench.data.formats.files import READERS, Format
from bertbench.data.formats.rows import Block
from bertbench.data.store.columns import FIELDS, Columns
from bertbench.data.store.dataset import MappedShard
from bertbench.data.store.manifest import (
    MANIFEST_NAME,
    VOCAB_NAME,
    Manifest,
    ShardFile,
    SplitName,
    Tokenizer,
    require_same,
)
from bertbench.data.store.parts import Source, forget_parts, made_parts, sources_of
from bertbench.data.store.shards import finish_split
from bertbench.data.text.prepare import best_guess
from bertbench.data.text.vocabulary import Vocabulary, tokenizer_of

_HELD_ENTRIES = 1 << 15  # ids are 16-bit signed integers


@dataclass(frozen=True)
class Conversion:
    """The files to read, and the form in which to store them."""

    format: Format
    files: tuple[Path, ...]
    split: SplitName
    vocab_size: int
    shard_samples: int
    vocabulary: Vocabulary | None = None
    """The vocabulary of the ids, if given; only its size is needed."""


def convert(out: Path, conversion: Conversion, progress: Progress) -> tuple[Manifest, bool]:
    """Make the dataset `out`, or add a split to it; return its manifest and whether that split was already there.

    Raises DataError if `out` holds another dataset, or at the first fault of the input.
    """
    if not 1 <= conversion.vocab_size <= _HELD_ENTRIES:
        raise DataError(
            f"vocabulary of {conversion.vocab_size:,} entries: expected 1 to {_HELD_ENTRIES:,}, as ids are stored in "
            "16 bits; give another --vocab-size"
        )
    split, vocabulary = conversion.split, conversion.vocabulary
    tokenizer = tokenizer_of(vocabulary) if vocabulary else Tokenizer(conversion.vocab_size, "", {})
    sources, seen = sources_of(conversion.files, progress), dict[object, Source]()
    for source in sources:
        _require_once(seen, source.sha256, source, "content")
    there = Manifest.read(out) if out.exists() else None
    request = _request(conversion, sources, there)
    if there is not None:
        exists = split in there.splits()
        require_same(out, there.request if exists else {**there.request, "source": request["source"]}, request)
        if there.tokenizer != tokenizer:
            raise DataError(f"{out}: holds samples of another vocabulary; give the same vocabulary, or another --out")
        if exists:
            return there, True
    work = out.with_name(f".{out.name}.unfinished-{split}")
    asked, make = [request["recipe"], conversion.format], partial(_convert_file, conversion)
    samples: dict[object, Source] = {}
    try:
        for source in made_parts(work, split, sources, asked, make, 1, progress):
            # a file that is stored differently, for example compressed, has another checksum
            _require_once(samples, tuple(shard.sha256 for shard in source.shards(work)), source, "samples")
        made = there or Manifest(request=request, tokenizer=tokenizer, tokenizer_version=None)
        manifest = _with_split(replace(made, request=request), work, sources, conversion)
        if there is None:
            work.replace(out)
        else:
            _join(work, out, split)
    except OSError as error:
        raise DataError(
            f"{out}: could not be written ({system_reason(error)}); finished files are kept beside it, "
            "make room and run it again"
        ) from error
    return manifest, False


def _with_split(made: Manifest, work: Path, sources: list[Source], conversion: Conversion) -> Manifest:
    """Complete the split in `work`, and write the manifest of a dataset that has it, too."""
    folder, shards = work / conversion.split, [shard for source in sources for shard in source.shards(work)]
    split = finish_split(folder, shards)
    if conversion.split == "train":
        manifest = replace(made, train=split)
    else:
        labels = [MappedShard(folder / shard.name, shard.samples).fields["masked_lm_ids"] for shard in shards]
        guess = best_guess(np.concatenate(labels), conversion.vocabulary)
        manifest = replace(made, eval=split, most_frequent_token=guess)
    if conversion.vocabulary is not None:
        conversion.vocabulary.write(work)
    manifest.write(work)
    forget_parts(work)
    return manifest


def _request(conversion: Conversion, sources: list[Source], there: Manifest | None) -> dict[str, Any]:
    """Return the dataset's identity: sizes, and name and checksum of every file of each split."""
    source = {"format": conversion.format, "files": [[source.path.name, source.sha256] for source in sources]}
    return {
        "recipe": {"converted": True, "vocab_size": conversion.vocab_size, "shard_samples": conversion.shard_samples},
        "source": {**(there.request["source"] if there else {}), conversion.split: source},
    }


def _require_once(seen: dict[object, Source], content: object, source: Source, what: str) -> None:
    twin = seen.setdefault(content, source)
    if twin is not source:
        raise DataError(
            f"{source.path}: found the {what} of {twin.path} again, expected every file once; leave one of them out"
        )


def _convert_file(conversion: Conversion, folder: Path, source: Source) -> list[ShardFile]:
    """Write the samples of one file into `folder` as shards, checked, in order and in the shards' types."""
    blocks = (_checked(block, conversion.vocab_size) for block in READERS[conversion.format](source.path))
    shards = source.write(folder, blocks, conversion.shard_samples)
    if not shards:
        raise DataError(f"{source.path}: found no samples, expected at least one; get it again, or leave it out")
    return shards


def _checked(block: Block, vocab_size: int) -> Columns:
    """Check the block's samples and narrow them to the shards' types; wide integers may be out of range before."""
    columns, rows, place = block
    if problem := columns.problem(vocab_size):
        sample, text = problem
        first = int(np.searchsorted(rows, rows[sample]))
        inside = f" in sequence {sample - first} of the row" if np.count_nonzero(rows == rows[sample]) > 1 else ""
        raise place.error(int(rows[sample]), f"{text}{inside}, expected none")
    return Columns(
        **{name: values.astype(FIELDS.get(name, np.int64), copy=False) for name, values in vars(columns).items()}
    )


def _join(added: Path, out: Path, split: SplitName) -> None:
    """Move a finished split into a dataset; the manifest comes last, so that a stop before it changes nothing."""
    shutil.rmtree(out / split, ignore_errors=True)  # left by an earlier stop; the manifest doesn't list it
    for name in (split, VOCAB_NAME, MANIFEST_NAME):
        if (added / name).exists():
            (added / name).replace(out / name)
    shutil.rmtree(added)
