"""Write a split shard by shard from files, and resume after a stop.

After each shard, a small state file records the next sample and its input file; a restart reads that file from its
beginning, skips the stored samples, and continues.
"""

import json
import shutil
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple, Self

from bertbench.common.atomic import write_state
from bertbench.data.store.columns import Columns
from bertbench.data.store.dataset import SplitName, shard_entries
from bertbench.data.store.manifest import ShardFile, Split
from bertbench.data.store.shards import finish_split, write_shard


class FileBlock(NamedTuple):
    """Samples of one input file, and the first one's number in the file."""

    file: int
    first: int
    samples: Columns


class StoredSoFar:
    """The finished shards; the next sample is number `skip` of input file `file`."""

    def __init__(self, work: Path, split: SplitName, state: dict[str, Any]) -> None:
        self.work = work
        self.folder = work / split
        self._asked = state["asked"]
        self.shards = [ShardFile(**shard) for shard in state["shards"]]
        self.file: int = state["file"]
        self.skip: int = state["skip"]
        self.contents: dict[str, int] = state["contents"]
        """Digest of the samples of every file that was read to its end -> number of the file."""

    @classmethod
    def resume(cls, work: Path, split: SplitName, recipe: object, files: list[list[str]]) -> Self:
        """Resume from an earlier run's shards in `work`, if recipe and files so far are the same, or start over.

        `files` are names and checksums; files after the last finished shard may have changed since.
        """
        asked = json.loads(json.dumps({"recipe": recipe, "files": files}))  # as it reads from the file
        path = _state(work)
        state = json.loads(path.read_text()) if path.exists() else None
        if state is None or _so_far(state["asked"], state["file"]) != _so_far(asked, state["file"]):
            shutil.rmtree(work, ignore_errors=True)
            (work / split).mkdir(parents=True)
            state = {"shards": [], "file": 0, "skip": 0, "contents": {}}
        return cls(work, split, {**state, "asked": asked})

    def store(self, blocks: Iterable[FileBlock], shard_samples: int) -> Split:
        """Write blocks, which begin with file `file`, as shards of `shard_samples`; skip stored samples."""
        waiting: list[Columns] = []
        missing = shard_samples  # in the shard in progress
        half_stored, skip = end = self.file, self.skip
        for file, first, samples in blocks:
            place = max(0, skip - first) if file == half_stored else 0
            while place < len(samples):
                piece = next(samples.split(missing, place))
                waiting.append(piece)
                place += len(piece)
                missing -= len(piece)
                if not missing:
                    self._finish_shard(waiting, file, first + place)
                    waiting, missing = [], shard_samples
            end = file, first + len(samples)
        if waiting:
            self._finish_shard(waiting, *end)
        return finish_split(self.folder, self.shards, shard_entries(self.folder, self.shards))

    def _finish_shard(self, samples: list[Columns], file: int, skip: int) -> None:
        path = self.folder / f"part_{len(self.shards):05d}.h5"
        self.shards.append(write_shard(path, Columns.joined(samples)))
        state = {
            "asked": self._asked,
            "shards": [asdict(shard) for shard in self.shards],
            "file": file,
            "skip": skip,
            "contents": {digest: number for digest, number in self.contents.items() if number < file},
        }
        write_state(_state(self.work), state)

    def discard_if_empty(self) -> None:
        """Remove the work folder if no shard is finished."""
        if not self.shards:
            shutil.rmtree(self.work)

    def forget_state(self) -> None:
        """Remove the state file of a whole split."""
        _state(self.work).unlink()


def _so_far(asked: dict[str, Any], file: int) -> tuple[object, object]:
    """Return the recipe, and the files of the finished shards."""
    return asked["recipe"], asked["files"][: file + 1]


def _state(work: Path) -> Path:
    return work / "state.json"
