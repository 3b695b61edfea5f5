"""Drop the page cache before a run, as MLPerf asks: no training data may start in memory."""

import os
from pathlib import Path

_DROP_CACHES = Path("/proc/sys/vm/drop_caches")


def clear_caches() -> bool:
    """Drop the operating system's page cache; False where that isn't allowed (it needs root on Linux)."""
    os.sync()
    try:
        _DROP_CACHES.write_text("3\n")
    except OSError:
        return False
    return True
