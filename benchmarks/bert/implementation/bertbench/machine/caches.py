"""Drop the page cache before a run, as MLPerf asks: no training data may start in memory."""

import os
from pathlib import Path

_DROP_CACHES = Path("/proc/sys/vm/drop_caches")


def cleared_by_launcher() -> bool:
    """Return whether run.sub or run_with_docker.sh dropped this node's page cache for this run."""
    return os.environ.get("BERTBENCH_CACHES_CLEARED") == "1"


def clear_caches() -> bool:
    """Drop the operating system's page cache; return False without permission (it needs root on Linux)."""
    os.sync()
    try:
        _DROP_CACHES.write_text("3\n")
    except OSError:
        return False
    return True
