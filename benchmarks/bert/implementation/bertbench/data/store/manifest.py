"""Read and write manifest.json: a dataset's content and origin. Every dataset folder has one."""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from bertbench import __version__
from bertbench.common.errors import DataError
from bertbench.common.json_object import differences, read_as
from bertbench.common.system_faults import exists, unreadable

SplitName = Literal["train", "eval"]
MANIFEST_NAME = "manifest.json"
VOCAB_NAME = "vocab.txt"
AGAIN = "remove the dataset's folder and prepare the data again"
"""The remedy for a damaged dataset; `data prepare` would find the folder, and use it."""
TOKENIZER_VERSION = 2
"""How text is split into words: 2 as in the reference; 1 as in the tokenizers library, which differs on rare letters.
"""


@dataclass(frozen=True)
class ShardFile:
    """One HDF5 file of a split."""

    name: str
    samples: int
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Split:
    """Counts and files of the training or the evaluation samples."""

    samples: int
    tokens: int
    masked_tokens: int
    longest: int
    """Tokens of the longest sample."""
    index_sha256: str
    shards: tuple[ShardFile, ...]


@dataclass(frozen=True)
class Tokenizer:
    """The vocabulary that all ids refer to; it is vocab.txt, next to the manifest."""

    vocab_size: int
    sha256: str
    special_ids: dict[str, int]


@dataclass(frozen=True)
class Guess:
    """The best constant prediction on the evaluation samples: a floor that any model must beat."""

    token: str
    accuracy: float


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The description of a whole dataset. The same `request` gives the same shards."""

    request: dict[str, Any]
    tool_version: str = __version__
    documents: int | None = None
    """Number of documents in the text; None for converted samples."""
    tokenizer: Tokenizer
    most_frequent_token: Guess | None = None
    """None without evaluation samples."""
    train: Split | None = None
    eval: Split | None = None
    tokenizer_version: int | None = None
    """The TOKENIZER_VERSION that turned the text into ids; None if the ids were converted."""
    format: Literal["bertbench shards 1"] = "bertbench shards 1"

    def splits(self) -> dict[SplitName, Split]:
        """Return the existing splits, by name."""
        splits: dict[SplitName, Split] = {}
        if self.train is not None:
            splits["train"] = self.train
        if self.eval is not None:
            splits["eval"] = self.eval
        return splits

    def write(self, folder: Path) -> None:
        """Write folder/manifest.json."""
        (folder / MANIFEST_NAME).write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> "Manifest":
        """Read folder/manifest.json.

        Raises DataError if there is none, it can't be read, or it is not a bertbench manifest.
        """
        path = folder / MANIFEST_NAME
        if not exists(path, DataError):
            raise DataError(
                f"{folder}: found no {MANIFEST_NAME}, so this is not a dataset; make one with `bertbench data prepare`"
            )
        manifest: Manifest = read_as(path, cls, DataError, AGAIN)
        return manifest


def existing(out: Path, request: dict[str, Any]) -> Manifest:
    """Return the manifest of an existing dataset.

    Raises DataError if it was made from another request, or if a shard isn't as long as it was written.
    """
    manifest = Manifest.read(out)
    if changed := differences(manifest.request, request):
        raise DataError(
            f"{out}: holds another dataset ({'; '.join(changed)}); give another --out, or remove {out} first"
        )
    for name, split in manifest.splits().items():
        for shard in split.shards:
            check_size(out / name / shard.name, shard)
    return manifest


def check_size(path: Path, shard: ShardFile) -> None:
    """Raise DataError if a shard is missing, or not as long as it was written."""
    again = f"copy it from where the dataset came from, or {AGAIN}"
    try:
        size = path.stat().st_size
    except OSError as error:
        raise DataError(unreadable(path, error, f"the manifest lists it: {again}")) from error
    if size != shard.bytes:
        raise DataError(
            f"{path}: found {size:,} bytes, the manifest says {shard.bytes:,}; the shard is damaged: {again}"
        )


def file_sha256(path: Path) -> str:
    """Return the checksum of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
