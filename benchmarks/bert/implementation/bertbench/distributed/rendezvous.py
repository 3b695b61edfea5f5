"""Wait for the other ranks of a run, which distributed/ranks.py numbers.

Every rank registers in a key-value store on rank 0's node. An error
names each rank that is missing, was started twice or belongs to another run.
"""

import os
import socket
import sys
import time
from datetime import timedelta
from pathlib import Path

from torch.distributed import HashStore, TCPStore
from torch.distributed.distributed_c10d import PrefixStore, Store

from bertbench.common.errors import RunError
from bertbench.distributed.loopback import loopback_store
from bertbench.distributed.ranks import AGENT, Ranks

_ROLL_CALL_KEY = "bertbench/roll call"  # empty when all have come, else why the run can't start
_CAME_KEY = "bertbench/came"
_NAMED_RANKS = 8
_LOG_KEY = "bertbench/log"
_LOOPBACK = {"127.0.0.1", "localhost", "::1"}


def meet(ranks: Ranks, timeout_s: int) -> PrefixStore:
    """Wait until all ranks have come; return their key-value store.

    Raises RunError that names the ranks that didn't come within `timeout_s`, were started twice, or belong to another
    run.
    """
    if ranks.size == 1 and AGENT not in os.environ:  # the agent's store outlives the rank
        return PrefixStore("alone", HashStore())
    missing = [name for name in ("MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
    if missing:
        raise RunError(
            f"{' and '.join(missing)} not set, so {ranks.size} ranks can't meet; "
            "set it to the first node's, the same on all ranks"
        )
    address, port = os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]
    one_machine = address in _LOOPBACK  # then no other machine needs to connect
    if one_machine and sys.platform == "linux":
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    holds_it = ranks.rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    timeout = timedelta(seconds=timeout_s)
    try:
        if holds_it and one_machine:
            store = loopback_store(int(port), timeout)
        else:  # no waiting for workers: the roll call waits, and names those missing
            store = TCPStore(address, int(port), is_master=holds_it, timeout=timeout, wait_for_workers=False)
    except (RuntimeError, ValueError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise RunError(
            f"rank {ranks.rank} of {ranks.size} could not meet the others at {address}:{port} within {timeout_s} s "
            f"({reason}); check that the port is free, that one rank 0 was started there, and that "
            "MASTER_ADDR and MASTER_PORT are the same on all ranks"
        ) from error
    # torchrun's agent keeps its store over restarts: keys of an earlier attempt must not count
    attempt = PrefixStore(f"attempt {_restarts()}", store)
    _call_roll(attempt, ranks, timeout_s)
    return attempt


def on_one_machine(ranks: Ranks) -> bool:
    """Return whether all ranks are on this machine and in one network namespace: they met on loopback."""
    return ranks.local_size == ranks.size and os.environ.get("MASTER_ADDR") in _LOOPBACK


def leave_log(store: PrefixStore, log: Path) -> None:
    """Record a run's log for the ranks that torchrun's agent may start after these."""
    store.underlying_store.set(_LOG_KEY, str(log.absolute()))


def log_left(store: PrefixStore) -> Path | None:
    """Return the log of the run that ranks restarted by torchrun's agent continue; None for a first start."""
    if not _restarts() or not store.underlying_store.check([_LOG_KEY]):
        return None
    return Path(store.underlying_store.get(_LOG_KEY).decode())


def _restarts() -> int:
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def _call_roll(store: Store, ranks: Ranks, timeout_s: int) -> None:
    """Wait until every rank of this run has come once; raises RunError that names those missing."""
    size = store.compare_set("bertbench/size", "", str(ranks.size)).decode()
    wrong = None
    if size != str(ranks.size):
        wrong = f"rank {ranks.rank} was started with {ranks.size} ranks, another with {size}; start all with the same"
    elif store.add(f"{_CAME_KEY}/{ranks.rank}", 1) > 1:
        wrong = (
            f"rank {ranks.rank} of {ranks.size} was started twice (again on {socket.gethostname()}); "
            "give every process its own rank"
        )
    if wrong is not None:
        store.set(_ROLL_CALL_KEY, wrong)
    elif store.add(_CAME_KEY, 1) == ranks.size:
        store.set(_ROLL_CALL_KEY, "")
    try:
        store.wait([_ROLL_CALL_KEY], timedelta(seconds=timeout_s))
        wrong = store.get(_ROLL_CALL_KEY).decode()
    except (RuntimeError, OSError) as error:
        raise RunError(_who_is_missing(store, ranks, timeout_s)) from error
    if wrong:
        if ranks.rank == 0:
            time.sleep(1)  # this process holds the store: let the others read the cause
        raise RunError(wrong)


def _who_is_missing(store: Store, ranks: Ranks, timeout_s: int) -> str:
    try:
        missing = absent(store, _CAME_KEY, ranks.size)
    except (RuntimeError, OSError):
        return f"rank {ranks.rank} of {ranks.size}: rank 0 is gone; its message says why"
    if ranks.rank == 0:
        time.sleep(1)  # this process holds the store: the others still read from it
    return (
        f"{ranks.size - len(missing)} of {ranks.size} ranks came within {timeout_s} s; missing: "
        f"{named(missing, ranks.size)}; check that every rank was started, and read their logs"
    )


def absent(store: Store, key: str, size: int) -> list[int]:
    """Return the ranks that have not set `key/<rank>`."""
    return [rank for rank in range(size) if not store.check([f"{key}/{rank}"])]


def named(ranks: list[int], size: int) -> str:
    """Format ranks for a message: the first few, and how many in all."""
    first = ", ".join(map(str, ranks[:_NAMED_RANKS]))
    more = f" and {len(ranks) - _NAMED_RANKS} more" if len(ranks) > _NAMED_RANKS else ""
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {first}{more} of {size}"
