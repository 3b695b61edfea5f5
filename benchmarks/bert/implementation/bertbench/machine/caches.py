"""Drop the page cache before a run, as MLPerf asks: no training data may start in memory."""

import os
from pathlib import Path

from bertbench.distributed.world import World

_DROP_CACHES = Path("/proc/sys/vm/drop_caches")


def clear_caches(world: World, asked: bool) -> list[bool]:
    """Return whether each node dropped its page cache: by run.sub or run_with_docker.sh, or if `asked` now. Collective.

    Dropping needs root on Linux.
    """
    cleared = None
    if world.ranks.local_rank == 0:
        cleared = os.environ.get("BERTBENCH_CACHES_CLEARED") == "1" or (asked and _dropped())
    return [answer for answer in world.from_all(cleared) if answer is not None]


def _dropped() -> bool:
    os.sync()
    try:
        _DROP_CACHES.write_text("3\n")
    except OSError:
        return False
    return True
