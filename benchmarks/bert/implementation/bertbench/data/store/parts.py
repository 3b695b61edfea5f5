"""Make a dataset from input files: workers convert one file after the other, and a restart makes only missing parts.

An input file is finished when a small file lists its shards. The shards and these lists are in a hidden folder next to
the dataset.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from bertbench.common.atomic import scratch_folder, write_state
from bertbench.common.children import die_with_parent
from bertbench.common.errors import DataError
from bertbench.common.progress import Progress
from bertbench.common.system_faults import exists
from bertbench.data.store.columns import Columns
from bertbench.data.store.manifest import Manifest, ShardFile, SplitName, existing
from bertbench.data.store.shards import not_made, regrouped, source_sha256, write_shard

_ASKED = "request.json"
_SCRATCH = "scratch"


class InputFile(NamedTuple):
    """One input file and its number."""

    number: int
    path: Path
    sha256: str

    def finished(self, work: Path) -> Path:
        """Return the file that lists this file's shards; it exists once they are written from this content."""
        return work / f"part_{self.number:05d}_{self.sha256[:16]}.json"

    def is_finished(self, work: Path, split: SplitName) -> bool:
        """Return whether an earlier command wrote this file's shards, and they are still there."""
        return self.finished(work).exists() and all((work / split / shard.name).exists() for shard in self.shards(work))

    def shards(self, work: Path) -> list[ShardFile]:
        """Return the written shards."""
        return [ShardFile(**shard) for shard in json.loads(self.finished(work).read_text())]

    def write(self, folder: Path, samples: Iterable[Columns], shard_samples: int) -> list[ShardFile]:
        """Write the samples of this file into `folder`, as shards of `shard_samples`."""
        return [
            write_shard(folder / f"part_{self.number:05d}_{place:02d}.h5", block)
            for place, block in enumerate(regrouped(samples, shard_samples))
        ]


Make = Callable[[Path, InputFile], list[ShardFile]]
"""Write the shards of a file into a folder."""
Assemble = Callable[[Path, list[ShardFile]], Manifest]
"""Complete the dataset in a folder, given all shards; return its manifest."""


def sources_of(paths: Sequence[Path], progress: Progress) -> list[InputFile]:
    """Return the files with their checksums. Raises DataError if one can't be read, or has the content of another."""
    by_content: dict[str, InputFile] = {}
    for number, path in enumerate(paths):
        source = InputFile(number, path, source_sha256(path))
        twin = by_content.setdefault(source.sha256, source)
        if twin is not source:
            raise DataError(
                f"{path}: found the content of {twin.path} again, expected each file once; leave one of them out"
            )
        progress.update(number + 1, len(paths), f"checksums: {number + 1} of {len(paths)} files")
    return list(by_content.values())


def recorded(sources: Iterable[InputFile]) -> list[list[str]]:
    """Return what a dataset's manifest records of its files: name and checksum of each, in the order of reading."""
    return [[source.path.name, source.sha256] for source in sources]


def made_of(
    out: Path, split: SplitName, request: dict[str, Any], sources: list[InputFile], make: Make, assemble: Assemble,
    workers: int, progress: Progress,
) -> tuple[Manifest, bool]:  # fmt: skip
    """Make the dataset `out`: `make` the shards of each file in the folder `split`, then `assemble` the rest.

    Return its manifest and whether it was already there. Raises DataError if `out` holds another dataset, the disk is
    full, or a worker was killed. The same command then resumes from the finished files, in a hidden folder next to
    `out`.
    """
    if exists(out, DataError):
        return existing(out, request), True
    work = out.with_name(f".{out.name}.unfinished")
    asked = json.dumps({"split": split, **{name: content for name, content in request.items() if name != "source"}})
    try:
        _make_parts(work, split, sources, asked, make, workers, progress)
        shards = [shard for source in sources for shard in source.shards(work)]
        _remove_others(work, split, shards)
        manifest = assemble(work, shards)
        manifest.write(work)
        for path in (work / _ASKED, *work.glob("part_*.json")):  # only a restart needs them
            path.unlink()
        work.replace(out)
    except OSError as error:
        resumes = any(work.glob("part_*.json"))
        kept = "finished files are kept: run the same command again to resume" if resumes else "nothing was kept"
        raise DataError(f"{not_made(out, error)}; {kept}") from error
    return manifest, False


def _remove_others(work: Path, split: SplitName, shards: list[ShardFile]) -> None:
    """Remove what earlier commands left: shards of files that this one leaves out, and unfinished shards."""
    names = {shard.name for shard in shards}
    for path in (work / split).iterdir():
        if path.name not in names:
            path.unlink()
    for folder in work.glob(f".{_SCRATCH}.*"):
        shutil.rmtree(folder)


def _make_parts(
    work: Path, split: SplitName, sources: list[InputFile], asked: str, make: Make, workers: int, progress: Progress
) -> None:
    """Make the shards of each file in `work`/`split`, except those that an earlier command made of the same request."""
    request = work / _ASKED
    if not request.exists() or request.read_text() != asked:
        shutil.rmtree(work, ignore_errors=True)
    listed = {source.finished(work) for source in sources}
    for path in work.glob("part_*.json"):
        if path not in listed:  # its shards may be overwritten now
            path.unlink()
    missing = [source for source in sources if not source.is_finished(work, split)]
    if len(missing) < len(sources):
        progress.message(f"{len(sources) - len(missing)} of {len(sources)} files were already finished")
    work.parent.mkdir(parents=True, exist_ok=True)
    (work / split).mkdir(parents=True, exist_ok=True)
    try:
        request.write_text(asked)
        with scratch_folder(work / _SCRATCH) as scratch:
            _write_parts(work, split, scratch, missing, make, workers, progress)
    finally:
        if not any(work.glob("part_*.json")):
            shutil.rmtree(work, ignore_errors=True)


def _write_parts(
    work: Path, split: SplitName, scratch: Path, missing: list[InputFile], make: Make, workers: int, progress: Progress
) -> None:
    """Make each part in `scratch`, and move it to `work` when it is complete."""
    if min(workers, len(missing)) > 1:
        made = _in_workers(scratch, missing, make, min(workers, len(missing)))
    else:
        made = ((source, make(scratch, source)) for source in missing)
    samples = 0
    for count, (source, shards) in enumerate(made, start=1):
        for shard in shards:
            (scratch / shard.name).replace(work / split / shard.name)
        write_state(source.finished(work), [asdict(shard) for shard in shards])
        samples += sum(shard.samples for shard in shards)
        progress.update(count, len(missing), f"file {count} of {len(missing)}, {samples:,} samples")


def _in_workers(
    scratch: Path, sources: list[InputFile], make: Make, workers: int
) -> Iterator[tuple[InputFile, list[ShardFile]]]:
    """Make the parts in worker processes; yield each file with its shards as it finishes."""
    with ProcessPoolExecutor(
        workers, get_context("spawn"), initializer=die_with_parent, initargs=(os.getpid(),)
    ) as pool:
        made = {pool.submit(make, scratch, source): source for source in sources}
        try:
            for part in as_completed(made):
                yield made[part], part.result()
        except BrokenProcessPool as error:
            raise DataError(
                "a worker process was killed, perhaps because memory ran out; finished files are kept; "
                "run the same command again with fewer --workers"
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)
