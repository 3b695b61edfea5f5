"""Distinguish faults of the machine from faults of a file, and report both in the system's own words.

A file that can't be read need not be damaged: a mount may be lost, a permission missing, or a limit reached. Preparing
365 GB again fixes none of these.
"""

import errno
import os
import re
from pathlib import Path

from bertbench.common.errors import BertbenchError, system_reason

_RIGHT = "give this user permission (`ls -ld` shows permissions and owner)"
_ROOM = "make room on its disk"
_REMEDIES = {
    errno.EACCES: _RIGHT,
    errno.EPERM: _RIGHT,
    errno.ENOSPC: _ROOM,
    errno.EDQUOT: _ROOM,
    errno.EMFILE: "raise `ulimit -n`",
}
"""What to do about the faults that the system's words don't explain."""
_OF_THE_FILE = (None, errno.ENOENT, errno.ENOTDIR, errno.EEXIST, errno.EINVAL)
"""Numbers of errors about a file that is missing or in the way, or whose content isn't what a library expects."""
_OF_ANY_PLACE = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_CERTAIN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.ESTALE, *_OF_ANY_PLACE)
"""Faults of the machine even if the error names no file; others may then be a socket's or a pipe's."""
_NO_PROCESS = ("can't start new thread", os.strerror(errno.EAGAIN))
_NO_TEMPORARY = "No usable temporary directory"  # tempfile, which torch calls as it is imported
_NUMBER = re.compile(r"(?:errno = |\(os error )(\d+)")


def is_systems(error: BaseException | None) -> bool:
    """Return whether an error is a fault of the machine, so that a file's content may still be right."""
    return isinstance(error, OSError) and error.errno not in _OF_THE_FILE


def systems_error(error: Exception) -> OSError | None:
    """Return the system's error whose number is in the text of a C or Rust library's error; None if there is none."""
    number = _NUMBER.search(str(error))
    return OSError(int(number[1]), os.strerror(int(number[1]))) if number else None


def remedy(error: OSError) -> str:
    """Return what to do about a fault of the machine; "" where the system's words say it."""
    return _REMEDIES.get(error.errno or 0, "")


def unreadable(path: Path, error: OSError, otherwise: str) -> str:
    """Return the message about a file that can't be read; `otherwise` is its remedy for a missing or damaged file."""
    if error.errno == errno.ENOENT and path.is_symlink():
        target = path.parent / os.readlink(path)  # noqa: PTH115 - Path.readlink changes the spelling
        return f"{path}: is a link to {target}, which isn't there; mount or restore that, or correct the link"
    advice = remedy(error) if is_systems(error) else otherwise
    return _message(f"{path}: cannot be read ({system_reason(error)})", advice)


def unwritable(path: Path, error: OSError, elsewhere: str) -> str:
    """Return the message about a path that can't be written; `elsewhere` says how to name another place."""
    advice = remedy(error)
    if error.errno not in _OF_ANY_PLACE:
        advice = f"{advice}, or {elsewhere}" if advice else elsewhere
    return _message(f"{path}: cannot be written ({system_reason(error)})", advice)


def uncaught(error: BaseException) -> str | None:
    """Return the message about the system's error that no reader or writer expected; None for any other error.

    Python and torch raise RuntimeError where the system starts no more threads.
    """
    if not isinstance(error, OSError | RuntimeError):
        return None
    is_of_a_file = isinstance(error, OSError) and error.filename is not None
    if not is_of_a_file and any(sign in str(error) for sign in _NO_PROCESS):
        return (
            "the system starts no more processes or threads for this user or container; raise `ulimit -u`, "
            "`docker run --pids-limit` or what else limits them"
        )
    if isinstance(error, RuntimeError):
        return None
    if _NO_TEMPORARY in str(error):
        return f"{error.strerror}; set TMPDIR to a folder that can be written"
    if error.errno in _CERTAIN or (error.filename is not None and is_systems(error)):
        return _message(f"{error.filename or 'a file'}: {system_reason(error)}", remedy(error))
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
        raise kind(unreadable(path, error, "")) from error
    return True


def _message(fault: str, advice: str) -> str:
    return f"{fault}; {advice}" if advice else fault
