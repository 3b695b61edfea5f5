"""A processor quota for single processes, by a control group of version 2 or 1."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

_PERIOD_US = 100_000
_ROOT = Path("/sys/fs/cgroup")


@contextmanager
def processor_quota(cores: float) -> Iterator[Path]:
    """Make a group whose processes may use so many cores; a process joins by writing its id into the file given.

    Skips the test where this process may not make one. The group is removed afterwards.
    """
    quota = int(cores * _PERIOD_US)
    group = (_ROOT / "cpu" if (_ROOT / "cpu").is_dir() else _ROOT) / f"bertbench-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"a processor quota needs root and control groups: {error}")
    try:
        try:
            if (group / "cpu.cfs_quota_us").exists():
                (group / "cpu.cfs_quota_us").write_text(f"{quota}")
            else:
                (group / "cpu.max").write_text(f"{quota} {_PERIOD_US}")
        except OSError as error:
            pytest.skip(f"a processor quota needs control groups with `cpu` among their controllers: {error}")
        yield group / "cgroup.procs"
    finally:
        for process in (group / "cgroup.procs").read_text().split():  # of a test that failed before they ended
            with suppress(ProcessLookupError):
                (group.parent / "cgroup.procs").write_text(process)
        group.rmdir()
