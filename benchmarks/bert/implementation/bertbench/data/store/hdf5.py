"""Open HDF5 files without a lock: shards are written once, under temporary names, and then only read.

Lustre without its flock option, NFS without lockd and many FUSE file systems refuse locks, which HDF5 takes by default.
If the user sets HDF5_USE_FILE_LOCKING, it overrides the argument.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import h5py

from bertbench.common.compressed import unpacking
from bertbench.common.errors import DataError
from bertbench.common.system_faults import systems_error, unreadable


def create_hdf5(path: Path) -> h5py.File:
    """Open a new file for writing, in the library's latest layout. Raises OSError."""
    return h5py.File(path, "w", libver="latest", locking=False)


@contextmanager
def open_hdf5(path: Path, remedy: str) -> Iterator[h5py.File]:
    """Open a file for reading in the body.

    Raises DataError if it or its content can't be read. If the machine is at fault, the message says what to do about
    that; if the file is damaged, it ends with `remedy`.
    """
    try:
        with h5py.File(path, locking=False) as file:
            yield file
    except (OSError, RuntimeError, KeyError) as error:  # h5py raises all of them on damaged files
        reason = systems_error(error)
        if reason is None:
            fault = f"cannot be read as HDF5 ({error}); {remedy}"
            raise DataError(f"{path}: {unpacking(path) or fault}") from error
        raise DataError(unreadable(path, reason, remedy)) from reason
