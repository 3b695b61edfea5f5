"""Find the files of a conversion, and their reader."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from bertbench.common.errors import DataError
from bertbench.data.formats.hdf5_read import read_hdf5
from bertbench.data.formats.rows import Block
from bertbench.data.formats.tfrecord import read_tfrecord

Format = Literal["hdf5", "tfrecord"]
READERS: dict[Format, Callable[[Path], Iterator[Block]]] = {"hdf5": read_hdf5, "tfrecord": read_tfrecord}
_HDF5_NAMES = (".hdf5", ".h5")


def input_files(paths: Sequence[Path], of: Format) -> tuple[Path, ...]:
    """Return the files at `paths`, in order; a folder stands for its HDF5 files, or all its TFRecords, by name.

    Hidden files are ignored. Raises DataError for a folder without such files.
    """
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = [
                file
                for file in sorted(path.iterdir())
                if file.is_file() and not file.name.startswith(".") and (of == "tfrecord" or file.suffix in _HDF5_NAMES)
            ]
            if not inside:
                raise DataError(f"{path}: found no {of} files in this folder; give a folder of {of} files")
            files += inside
        else:
            files.append(path)
    return tuple(files)
