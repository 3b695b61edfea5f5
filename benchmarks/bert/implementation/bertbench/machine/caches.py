"""Drop the page cache before a run, as MLPerf asks: no training data may start in memory."""

import os
from pathlib import Path

from bertbench.distributed.world import World

_DROP_CACHES = Path("/proc/sys/vm/drop_caches")


def clear_caches(world: World, asked: bool, done: bool) -> list[bool]:
    """Return, for each node, whether its page cache was dropped.

    `done` says that a script has dropped this node's before; if `asked`, drop it now, which needs root on Linux.
    Collective.
    """
    cleared = None
    if world.ranks.local_rank == 0:
        cleared = done or (asked and _dropped())
    return [answer for answer in world.from_all(cleared) if answer is not None]


def _dropped() -> bool:
    os.sync()
    try:
        _DROP_CACHES.write_text("3\n")
    except OSError:
        return False
    return True
