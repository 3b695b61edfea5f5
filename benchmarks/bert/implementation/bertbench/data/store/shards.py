"""Write samples as HDF5 shards of flat arrays, which can be memory-mapped, with their index and checksums.

Fields and integer types are MLPerf's; `offsets` and `masked_offsets` give the bounds of sample i.
The same samples give the same bytes. No more than one shard is in memory.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile

import numpy as np

from bertbench.common.atomic import new_folder
from bertbench.common.errors import DataError
from bertbench.common.system_faults import exists, unreadable, unwritable
from bertbench.data.store.columns import INDEX_NAME, SHARD_FIELDS, Columns, offsets, pack
from bertbench.data.store.dataset import MappedShard
from bertbench.data.store.hdf5 import create_hdf5
from bertbench.data.store.manifest import MANIFEST_NAME, ShardFile, Split, file_sha256


def write_split(folder: Path, blocks: Iterable[Columns], shard_samples: int) -> Split:
    """Write blocks of samples to folder/part_00000.h5, ... with `shard_samples` each, and folder/index.npy.

    Samples keep their order for any block size.
    """
    return write_shards(folder, regrouped(blocks, shard_samples))


def write_shards(folder: Path, shards: Iterable[Columns]) -> Split:
    """Write each of `shards` to folder/part_00000.h5, ..., and folder/index.npy."""
    folder.mkdir()
    files = [write_shard(folder / f"part_{number:05d}.h5", shard) for number, shard in enumerate(shards)]
    return finish_split(folder, files)


def finish_split(folder: Path, shards: Sequence[ShardFile]) -> Split:
    """Write the index of a split whose shards are written."""
    sizes = [shard.samples for shard in shards]
    tokens = masked = longest = 0
    # written, not mapped: on a full disk, writing to a map kills the process
    with (folder / INDEX_NAME).open("wb") as index:
        header = {"descr": np.dtype(np.uint16).str, "fortran_order": False, "shape": (sum(sizes),)}
        np.lib.format.write_array_header_1_0(index, header)
        for shard in shards:
            content = MappedShard(folder / shard.name, shard.samples).content()
            index.write(pack(content.lengths, content.masked).tobytes())
            tokens += int(content.lengths.sum())
            masked += int(content.masked.sum())
            longest = max(longest, int(content.lengths.max()))
    return Split(
        samples=sum(sizes),
        tokens=tokens,
        masked_tokens=masked,
        longest=longest,
        index_sha256=file_sha256(folder / INDEX_NAME),
        shards=tuple(shards),
    )


def write_shard(path: Path, samples: Columns) -> ShardFile:
    """Write one shard."""
    values = {**vars(samples), "offsets": offsets(samples.lengths), "masked_offsets": offsets(samples.masked)}
    with create_hdf5(path) as file:
        for name, dtype in SHARD_FIELDS.items():
            # contiguous, without timestamps: readers map it from the file, and the same samples give the same bytes
            file.create_dataset(name, data=values[name].astype(dtype, copy=False), track_times=False)
    return ShardFile(path.name, len(samples), path.stat().st_size, file_sha256(path))


def regrouped(blocks: Iterable[Columns], size: int) -> Iterator[Columns]:
    """Yield the same samples in blocks of `size`; the last one may be smaller."""
    waiting: list[Columns] = []
    samples = 0
    for block in blocks:
        waiting.append(block)
        samples += len(block)
        if samples >= size:
            *full, rest = Columns.joined(waiting).split(size)
            yield from full
            waiting = [rest]
            samples = len(rest)
    if samples:
        yield from Columns.joined(waiting).split(size)


@contextmanager
def unfinished(out: Path) -> Iterator[Path]:
    """Yield a temporary folder that becomes `out` if the body succeeds, and is removed if it fails.

    Raises DataError if it can't be written.
    """
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with new_folder(out) as folder:
            yield folder
    except OSError as error:
        raise DataError(f"{not_made(out, error)}; nothing was kept") from error


def check_place(out: Path) -> None:
    """Raise DataError unless `out` is a dataset, or one can be made there: reading the input may take hours."""
    if exists(out, DataError):
        if not exists(out / MANIFEST_NAME, DataError):
            raise DataError(f"{out}: is there already and isn't a dataset; give another --out, or remove {out} first")
        return
    folder = next(parent for parent in out.absolute().parents if exists(parent, DataError))
    try:
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise DataError(unwritable(out, error, "name another --out")) from error


def not_made(out: Path, error: OSError) -> str:
    """Return the message about a dataset that couldn't be made because of a failed read or write.

    It never contains temporary names.
    """
    failed = Path(error.filename or out)
    temporary = str(failed).startswith(str(out.with_name(f".{out.name}.")))
    if temporary or failed in (out, *out.parents):
        return unwritable(out, error, "name another --out")
    return f"{out}: was not made, because {unreadable(failed, error, 'fix that first')}"


def source_sha256(path: Path) -> str:
    """Return the checksum of a user's file; raises DataError if it can't be read, or not twice."""
    try:
        if not (path.is_file() or path.is_dir()) and exists(path, DataError):
            raise DataError(
                f"{path}: found a pipe or a device, expected a file, because input is read twice: first for its "
                "checksum; write it into a file"
            )
        return file_sha256(path)
    except OSError as error:
        raise DataError(unreadable(path, error, "give a readable file")) from error
