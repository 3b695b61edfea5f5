"""Map a whole file into memory without keeping it open.

Python's mmap keeps a descriptor for each mapping (until Python 3.13), and a rank maps thousands of shards, but may
usually open only 1,024 files. The kernel needs no descriptor: the file stays readable, even after it is removed.
"""

import ctypes
import mmap
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_LIMIT = Path("/proc/sys/vm/max_map_count")
_OTHER_MAPPINGS = 16_384
"""Kept for all else that a process maps. It has 540 mappings after it has imported torch, and more with a GPU."""
_FAILED = ctypes.c_void_p(-1).value
_C_LIBRARY = ctypes.CDLL(None, use_errno=True)
_C_LIBRARY.mmap.restype = ctypes.c_void_p
_C_LIBRARY.mmap.argtypes = (
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long,
)  # fmt: skip
_C_LIBRARY.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)


def mapped_bytes(path: Path) -> NDArray[np.uint8]:
    """Return the bytes of a file; they stay on disk until they are used. Raises OSError, also for an empty file."""
    return np.asarray(_Mapping(path))


def most_mapped_files() -> int | None:
    """Return how many files a process can map on this machine; None if the system states no limit."""
    try:
        return int(_LIMIT.read_text()) - _OTHER_MAPPINGS
    except OSError:  # Linux alone has it
        return None


class _Mapping:
    """The mapping of a file, which ends when no array uses it any more."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._size = os.fstat(file.fileno()).st_size
            address = _C_LIBRARY.mmap(None, self._size, mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), 0)
        if address == _FAILED:
            number = ctypes.get_errno()
            self._size = 0
            raise OSError(number, os.strerror(number), str(path))
        self._address = address

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """Return numpy's description of the memory, which is read-only."""
        return {"version": 3, "typestr": "|u1", "shape": (self._size,), "data": (self._address, True)}

    def __del__(self, unmap: Any = _C_LIBRARY.munmap) -> None:
        """End the mapping; `unmap` is bound here because a module loses its names when the program ends."""
        if self._size:
            unmap(self._address, self._size)
