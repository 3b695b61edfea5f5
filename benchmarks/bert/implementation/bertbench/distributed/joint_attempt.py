"""Attempt something collective that may fail, and find out whether all ranks get out of it.

A rank that fails leaves work in which the others may wait for it: no message reaches their main threads there. So every
rank records in the store that its attempt is over, and a rank that fails waits for the others' records. If all come,
after the same collectives, the ranks go on together. Otherwise the rank that fails ends the run, and says why.
"""

import itertools
import socket
import time
from collections.abc import Callable
from typing import TypeVar

from bertbench.common.errors import RunError
from bertbench.distributed.network_errors import lost_contact
from bertbench.distributed.rendezvous import absent, ranks_text
from bertbench.distributed.world import World

Result = TypeVar("Result")
_OVER_KEY = "bertbench/attempt"
_LEAST_WAIT_S = 5.0  # two ranks that share a busy core failed up to 2 s apart
_LOOK_EVERY_S = 0.1
_numbers = itertools.count()  # the same on all ranks, because all make the same attempts


def attempt_together(
    world: World, name: str, attempt: Callable[[], Result], refusals: tuple[type[Exception], ...], remedy: str
) -> Result | Exception:
    """Return what `attempt` returns, or its error if that is one of `refusals`. Collective.

    Raises RunError if this rank fails, and others have not ended their attempts after as long again as this rank's
    took: they wait for it. Raises RunError, too, if ranks end theirs after different collectives, because the next
    collective of one would meet an earlier one of another. `name` says in the error what was attempted, and `remedy`
    what a user can do.
    """
    key = f"{_OVER_KEY}/{next(_numbers)}"
    began = time.monotonic()
    try:
        result = attempt()
    except refusals as error:
        if lost_contact(error):
            raise
        _record_end(world, key)
        way_out = f"repair {socket.gethostname()}, or {remedy}"
        if waiting := _still_at_it(world, key, time.monotonic() - began):
            raise RunError(
                f"{name} failed on this rank alone ({reason_of(error)}), and {ranks_text(waiting, world.size)} can't "
                f"go on without it; {way_out}"
            ) from error
        if _have_parted(world, key):
            raise RunError(
                f"{name} failed on this rank ({reason_of(error)}) after other collectives than on others; {way_out}"
            ) from error
        return error
    _record_end(world, key)
    return result


def reason_of(error: Exception) -> str:
    """Return the last line of an error's text, which says most; its type's name if it has no text."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[-1]


def _record_end(world: World, key: str) -> None:
    """Record that this rank's attempt is over, and after how many collectives."""
    world.store.set(f"{key}/{world.rank}", str(world.collectives_begun()))


def _have_parted(world: World, key: str) -> bool:
    """Return whether ranks ended their attempts after different numbers of collectives."""
    counts = world.store.multi_get([f"{key}/{rank}" for rank in range(world.size)])
    return len(set(counts)) > 1


def _still_at_it(world: World, key: str, own_s: float) -> list[int]:
    """Return the ranks whose attempts don't end in time, if this rank's took `own_s` seconds."""
    end = time.monotonic() + max(_LEAST_WAIT_S, own_s)
    while waiting := absent(world.store, key, world.size):
        if time.monotonic() > end:
            break
        time.sleep(_LOOK_EVERY_S)
    return waiting
