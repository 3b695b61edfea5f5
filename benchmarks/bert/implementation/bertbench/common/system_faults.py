"""Distinguish faults of the machine from faults of a file, and say how to fix either.

A file that can't be read need not be damaged: a mount may be lost, a permission missing, or a limit reached. Preparing
365 GB again fixes none of these, so each has a remedy of its own.
"""

import errno
import os
import re
from pathlib import Path

from bertbench.common.errors import BertbenchError, system_reason

_NETWORK = "its network file system doesn't answer: mount it again, then run the same command again"
_RIGHT = "give this user permission (`ls -ld` shows permissions and owner)"
_REMEDIES = {
    errno.EACCES: _RIGHT,
    errno.EPERM: _RIGHT,
    errno.EROFS: "its file system is mounted read-only: name a place on another one",
    errno.ENOSPC: "make room on its disk",
    errno.EDQUOT: "make room: this user's quota on its disk is used up",
    errno.EFBIG: "lift `ulimit -f`, or name a file system that takes larger files",
    errno.EMFILE: "this process has too many open files: raise `ulimit -n`",
    errno.ENFILE: "this machine has too many open files: raise fs.file-max, or end other processes",
    errno.ENOMEM: "memory is used up, or a limit on it: end other processes, or raise `ulimit -v` or vm.max_map_count",
    errno.EAGAIN: "another process holds a lock on it: end that, or set HDF5_USE_FILE_LOCKING=FALSE",
    errno.ENOLCK: "its file system has no locks: set HDF5_USE_FILE_LOCKING=FALSE",
    errno.ENODEV: "its file system can't map files into memory: copy it to a local disk",
    errno.EIO: "its disk or network failed, see `dmesg`: try again, or read it from another copy",
    errno.ESTALE: _NETWORK,
    errno.ENOTCONN: _NETWORK,
    errno.EHOSTDOWN: _NETWORK,
    errno.EHOSTUNREACH: _NETWORK,
    errno.ETIMEDOUT: _NETWORK,
    errno.ENXIO: "its device is gone: attach or mount it again",
    errno.EISDIR: "a folder is there, expected a file: put the file there, or name it",
    errno.ELOOP: "its links form a loop: correct them",
}
"""What to do about each fault of the machine; ENOENT and others are faults of the file."""
_NUMBER = re.compile(r"(?:errno = |\(os error )(\d+)")
_OF_ANY_PLACE = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_CERTAIN = (
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.ESTALE, *_OF_ANY_PLACE,
)  # fmt: skip
"""Faults of the machine even if the error names no file.

Without a file's name, others may be a socket's or a pipe's.
"""


def is_systems(error: BaseException | None) -> bool:
    """Return whether an error is a fault of the machine, so that a file's content may still be right."""
    return isinstance(error, OSError) and error.errno in _REMEDIES


def systems_error(error: Exception) -> OSError | None:
    """Return the system's error whose number is in the text of a C or Rust library's error; None if there is none."""
    number = _NUMBER.search(str(error))
    return OSError(int(number[1]), os.strerror(int(number[1]))) if number else None


def remedy(error: OSError, otherwise: str) -> str:
    """Return what to do about a fault: the remedy if it is the machine's, else `otherwise`."""
    return _REMEDIES.get(error.errno or 0, otherwise)


def unreadable(path: Path, error: OSError, otherwise: str) -> str:
    """Return the message about a file that can't be read; `otherwise` is its remedy for a missing or damaged file."""
    if error.errno == errno.ENOENT and path.is_symlink():
        target = path.parent / os.readlink(path)  # noqa: PTH115 - Path.readlink changes the spelling
        return f"{path}: is a link to {target}, which isn't there; mount or restore that, or correct the link"
    return f"{path}: cannot be read ({system_reason(error)}); {remedy(error, otherwise)}"


def unwritable(path: Path, error: OSError, elsewhere: str) -> str:
    """Return the message about a path that can't be written; `elsewhere` says how to name another place."""
    advice = _REMEDIES.get(error.errno or 0)
    if advice is None:
        advice = elsewhere
    elif error.errno not in _OF_ANY_PLACE:
        advice = f"{advice}, or {elsewhere}"
    return f"{path}: cannot be written ({system_reason(error)}); {advice}"


def uncaught(error: OSError) -> str | None:
    """Return the message about an error that no reader or writer expected; None if it may be a bug in bertbench."""
    if error.errno in _CERTAIN or (error.filename is not None and is_systems(error)):
        return f"{error.filename or 'a file'}: {system_reason(error)}; {remedy(error, '')}"
    return None


def exists(path: Path, kind: type[BertbenchError]) -> bool:
    """Return whether there is anything at `path`; raise `kind` if the system can't tell, or for a link to nothing."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError) as error:
        if path.is_symlink():
            raise kind(unreadable(path, error, "")) from error
        return False
    except OSError as error:
        raise kind(unreadable(path, error, "fix that first")) from error
    return True
