"""`bertbench data prepare --from-hdf5 | --from-tfrecord`: convert published samples to a dataset folder.

It reads the input twice: for checksums, which find a repeated file before hours are spent, then for the samples, in
blocks, so that one shard bounds the memory. A restart resumes after the last finished shard (data/store/stored.py).
A second split joins a dataset that has the first one.
"""

import hashlib
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from bertbench import __version__
from bertbench.common.errors import DataError, system_reason
from bertbench.common.progress import Progress
from bertbench.data.formats.files import READERS, Format
from bertbench.data.formats.rows import Block
from bertbench.data.store.columns import Columns
from bertbench.data.store.dataset import MappedShard, SplitName
from bertbench.data.store.manifest import MANIFEST_NAME, VOCAB_NAME, Guess, Manifest, Split, Tokenizer
from bertbench.data.store.shards import FIELDS, file_sha256
from bertbench.data.store.stored import FileBlock, StoredSoFar
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

    def tokenizer(self) -> Tokenizer:
        """Return the manifest's entry for the vocabulary; without a file its checksum is empty."""
        return tokenizer_of(self.vocabulary) if self.vocabulary else Tokenizer(self.vocab_size, "", {})


def convert(out: Path, conversion: Conversion, progress: Progress) -> tuple[Manifest, bool]:
    """Make the dataset `out`, or add a split to it; return its manifest and whether that split was already there.

    Raises DataError if `out` holds another dataset, or at the first fault of the input.
    """
    if not 1 <= conversion.vocab_size <= _HELD_ENTRIES:
        raise DataError(
            f"vocabulary of {conversion.vocab_size:,} entries: expected 1 to {_HELD_ENTRIES:,}, as ids are stored in "
            "16 bits; give another --vocab-size"
        )
    there = Manifest.read(out) if out.exists() else None
    request = _request(conversion, there, progress)
    if there is not None and conversion.split in there.splits():
        _require_same(out, there.request, request, conversion.split)
        return there, True
    tokenizer = conversion.tokenizer()
    if there is not None and (there.request.get("recipe"), there.tokenizer) != (request["recipe"], tokenizer):
        raise DataError(
            f"{out}: holds a split with the recipe {_short(there.request.get('recipe'))}, expected "
            f"{request['recipe']} and the same vocabulary; give another --out"
        )
    work = out.with_name(f".{out.name}.unfinished-{conversion.split}")
    try:
        files = request["source"][conversion.split]["files"]
        stored = StoredSoFar.resume(work, conversion.split, [request["recipe"], conversion.format], files)
        try:
            split = stored.store(_sound(conversion, stored, progress), conversion.shard_samples)
        finally:
            stored.discard_if_empty()
        manifest = there or Manifest(request, __version__, None, tokenizer, None, None, None, tokenizer_version=None)
        if conversion.split == "train":
            manifest = replace(manifest, request=request, train=split)
        else:
            guess = _best_guess(work / "eval", split, conversion)
            manifest = replace(manifest, request=request, eval=split, most_frequent_token=guess)
        if conversion.vocabulary is not None:
            (work / VOCAB_NAME).write_text(conversion.vocabulary.text, encoding="utf-8")
        manifest.write(work)
        stored.forget_state()
        if there is None:
            work.replace(out)
        else:
            _join(work, out, conversion.split)
    except OSError as error:
        raise DataError(
            f"{out}: could not be written ({system_reason(error)}); finished shards are kept beside it, "
            "make room and run it again"
        ) from error
    return manifest, False


def _request(conversion: Conversion, there: Manifest | None, progress: Progress) -> dict[str, Any]:
    """Return the dataset's identity: sizes, and name and checksum of every file of each split."""
    seen: dict[str, Path] = {}
    for number, path in enumerate(conversion.files, start=1):
        try:
            checksum = file_sha256(path)
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({system_reason(error)}); give a readable file") from error
        if checksum in seen:
            raise DataError(
                f"{path}: found the content of {seen[checksum]} again, expected every file once; leave one of them out"
            )
        seen[checksum] = path
        progress.update(number, len(conversion.files), f"checksums: {number} of {len(conversion.files)} files")
    source = {"format": conversion.format, "files": [[path.name, checksum] for checksum, path in seen.items()]}
    return {
        "recipe": {"converted": True, "vocab_size": conversion.vocab_size, "shard_samples": conversion.shard_samples},
        "source": {**(there.request.get("source", {}) if there else {}), conversion.split: source},
    }


def _require_same(out: Path, there: dict[str, Any], asked: dict[str, Any], split: SplitName) -> None:
    for section, one, other in (
        ("recipe", there.get("recipe"), asked["recipe"]),
        (f"source.{split}", there.get("source", {}).get(split), asked["source"][split]),
    ):
        if one != other:
            raise DataError(
                f"{out}: holds another dataset ({section} differs: {_short(one)} there, {_short(other)} requested); "
                f"give another --out, or remove {out} first"
            )


def _short(content: object) -> str:
    text = str(content)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _sound(conversion: Conversion, stored: StoredSoFar, progress: Progress) -> Iterator[FileBlock]:
    """Yield the samples from the first unfinished file on, in order, checked, in the shards' types."""
    began, done = time.monotonic(), 0
    for number, path in enumerate(conversion.files[stored.file :], start=stored.file):
        content = hashlib.sha256()
        first = 0
        for block in READERS[conversion.format](path):
            columns = _checked(block, conversion.vocab_size)
            for part in fields(columns):
                content.update(getattr(columns, part.name).tobytes())
            done += len(columns)
            rate = done / max(time.monotonic() - began, 1e-9)
            progress.update(
                number,
                len(conversion.files),
                f"file {number + 1} of {len(conversion.files)}, {done:,} samples, {rate:,.0f} samples/s",
            )
            yield FileBlock(number, first, columns)
            first += len(columns)
        if not first:
            raise DataError(f"{path}: found no samples, expected at least one; get it again, or leave it out")
        twin = stored.contents.setdefault(content.hexdigest(), number)
        if twin != number:  # stored differently, for example compressed: the checksums differ
            raise DataError(
                f"{path}: found the samples of {conversion.files[twin]} again, expected every sample file once; "
                "leave one of them out"
            )


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


def _best_guess(folder: Path, split: Split, conversion: Conversion) -> Guess:
    """Return the most frequent label of a written split, and its share."""
    counts = np.zeros(conversion.vocab_size, np.int64)
    for shard in split.shards:
        labels = MappedShard(folder / shard.name, shard.samples).masked_lm_ids
        counts += np.bincount(labels, minlength=len(counts))
    token = int(np.argmax(counts))
    name = conversion.vocabulary.tokens[token] if conversion.vocabulary else f"id {token}"
    return Guess(name, float(counts[token] / counts.sum()))


def _join(added: Path, out: Path, split: SplitName) -> None:
    """Move a finished split into a dataset; the manifest comes last, so that a stop before it changes nothing."""
    shutil.rmtree(out / split, ignore_errors=True)  # left by an earlier stop; the manifest doesn't list it
    for name in (split, VOCAB_NAME, MANIFEST_NAME):
        if (added / name).exists():
            (added / name).replace(out / name)
    shutil.rmtree(added)
