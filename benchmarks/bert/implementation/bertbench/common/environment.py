"""Prepare this process's environment variables before libraries read them, so that a command works on any site.

No variable that changes results is touched here: launch/honour.py honours or refuses those.
"""

import getpass
import os
from pathlib import Path

_BINDING = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")
"""By these, OpenMP binds a process to its first core as soon as torch is imported, and so all ranks that it starts."""

not_used: dict[str, str] = {}
"""The variables that `prepare` removed, with their values."""


def prepare() -> None:
    """Remove variables by which OpenMP would bind this process and its ranks, and give a nameless user a name."""
    for name in _BINDING:
        if name in os.environ:
            not_used[name] = os.environ.pop(name)
    _name_user()


def _name_user() -> None:
    """Set USER and HOME for a user without either, as in `docker run --user 12345`: libraries need them for caches."""
    try:
        getpass.getuser()
    except (KeyError, OSError):
        os.environ["USER"] = f"uid-{os.getuid()}"
    try:
        Path.home()
    except RuntimeError:
        os.environ["HOME"] = "/"  # as docker sets it
