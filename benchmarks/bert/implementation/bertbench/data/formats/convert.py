"""`bertbench data convert-hdf5` and `data convert-tfrecord`: convert published samples to a dataset folder.

It reads the input twice: first for checksums, which reveal a repeated file before hours are spent, and then for the
samples, in blocks, so that it never holds more than one shard in memory. A restart makes only the unfinished files
(data/store/parts.py).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from bertbench.common.errors import DataError
from bertbench.common.progress import Progress
from bertbench.common.system_faults import exists, unreadable
from bertbench.data.formats.hdf5_layouts import read_hdf5
from bertbench.data.formats.rows import Block
from bertbench.data.formats.tfrecord import read_tfrecord
from bertbench.data.store.columns import SAMPLE_FIELDS, Columns
from bertbench.data.store.dataset import MappedShard
from bertbench.data.store.manifest import Manifest, ShardFile, SplitName, Tokenizer
from bertbench.data.store.parts import InputFile, made_of, recorded, sources_of
from bertbench.data.store.shards import check_place, finish_split
from bertbench.data.text.prepare import best_guess
from bertbench.data.text.vocabulary import Vocabulary, tokenizer_of

Format = Literal["hdf5", "tfrecord"]
_READERS: dict[Format, Callable[[Path], Iterator[Block]]] = {"hdf5": read_hdf5, "tfrecord": read_tfrecord}
_HDF5_NAMES = (".hdf5", ".h5")
_SHOWN = 5
"""Names of unread files that a message shows."""
_MOST_ENTRIES = 1 << 15  # ids are 16-bit signed integers


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


def input_files(paths: Sequence[Path], file_format: Format, progress: Progress) -> tuple[Path, ...]:
    """Return the files at `paths`, in order; a folder stands for its HDF5 files or, for TFRecords, all its files.

    A folder's files are sorted by name. A line names what isn't read of a folder, except hidden files. Raises DataError
    for a folder without such files, or with a link to nothing.
    """
    files: list[Path] = []
    unread: list[Path] = []
    for path in paths:
        if not path.is_dir():
            files.append(path)
            continue
        entries = _entries(path)
        inside = [entry for entry in entries if _is_input(entry, file_format)]
        others = [entry for entry in entries if not _is_input(entry, file_format)]
        if not inside:
            raise DataError(
                f"{path}: found no {file_format} files in this folder{_listed(others)}; give a folder of {file_format} "
                "files"
            )
        files += inside
        unread += others
    if unread:
        kind = f"files named {' or '.join(f'*{name}' for name in _HDF5_NAMES)}" if file_format == "hdf5" else "files"
        progress.message(f"warning: not read{_listed(unread)}; of a folder, only its own {kind} are read")
    return tuple(files)


def _entries(folder: Path) -> list[Path]:
    """Return what is in a folder, sorted, without hidden names. Raises DataError for a link to nothing."""
    try:
        entries = [entry for entry in sorted(folder.iterdir()) if not entry.name.startswith(".")]
    except OSError as error:
        raise DataError(unreadable(folder, error, "give the samples' folder")) from error
    for entry in entries:
        exists(entry, DataError)
    return entries


def _is_input(entry: Path, file_format: Format) -> bool:
    return entry.is_file() and (file_format == "tfrecord" or entry.suffix in _HDF5_NAMES)


def _listed(entries: Sequence[Path]) -> str:
    """Return the names of entries for a message, the first few of many."""
    if not entries:
        return ""
    names = ", ".join(str(entry) for entry in entries[:_SHOWN])
    return f": {names}" + (f" and {len(entries) - _SHOWN:,} more" if len(entries) > _SHOWN else "")


def convert_samples(out: Path, conversion: Conversion, progress: Progress) -> tuple[Manifest, bool]:
    """Make the dataset `out` of one split; return its manifest and whether it was already there.

    Raises DataError at the first fault of the input, or as `made_of` does.
    """
    if not 1 <= conversion.vocab_size <= _MOST_ENTRIES:
        raise DataError(
            f"vocabulary of {conversion.vocab_size:,} entries: expected 1 to {_MOST_ENTRIES:,}, as ids are stored in "
            "16 bits; give another --vocab-size"
        )
    check_place(out)
    sources = sources_of(conversion.files, progress)
    request: dict[str, Any] = {
        "recipe": {"converted": True, "vocab_size": conversion.vocab_size, "shard_samples": conversion.shard_samples},
        "source": {conversion.split: {"format": conversion.format, "files": recorded(sources)}},
    }
    if conversion.vocabulary is not None:
        request["vocab_sha256"] = conversion.vocabulary.sha256
    make = partial(_convert_file, conversion)
    assemble = partial(_assemble, conversion, request)
    return made_of(out, conversion.split, request, sources, make, assemble, 1, progress)


def _assemble(conversion: Conversion, request: dict[str, Any], work: Path, shards: list[ShardFile]) -> Manifest:
    """Complete the split, once every file is converted."""
    folder = work / conversion.split
    vocabulary = conversion.vocabulary
    if vocabulary is not None:
        vocabulary.write(work)
    tokenizer = tokenizer_of(vocabulary) if vocabulary else Tokenizer(conversion.vocab_size, "", {})
    split = finish_split(folder, shards)
    if conversion.split == "train":
        return Manifest(request=request, tokenizer=tokenizer, train=split)
    labels = [MappedShard(folder / shard.name, shard.samples).fields["masked_lm_ids"] for shard in shards]
    guess = best_guess(np.concatenate(labels), vocabulary)
    return Manifest(request=request, tokenizer=tokenizer, eval=split, most_frequent_token=guess)


def _convert_file(conversion: Conversion, folder: Path, source: InputFile) -> list[ShardFile]:
    """Check the samples of one file, and write them into `folder` as shards, in order and in the shards' types."""
    blocks = (_checked(block, conversion.vocab_size) for block in _READERS[conversion.format](source.path))
    shards = source.write(folder, blocks, conversion.shard_samples)
    if not shards:
        raise DataError(f"{source.path}: found no samples, expected at least one; download it again, or leave it out")
    return shards


def _checked(block: Block, vocab_size: int) -> Columns:
    """Check the block's samples, then narrow them to the shards' types, which would hide values out of range."""
    if invalid := block.columns.problem(vocab_size):
        raise block.place.error(int(block.rows[invalid.number]), invalid.fault)
    narrowed = {
        name: values.astype(SAMPLE_FIELDS.get(name, np.int64), copy=False)
        for name, values in vars(block.columns).items()
    }
    return Columns(**narrowed)
