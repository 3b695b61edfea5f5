"""Wait for the other ranks of a run. distributed/ranks.py gives their numbers.

Every rank registers in a key-value store on rank 0's node. An error names each rank that is missing, was started twice
or belongs to another run.
"""

import ipaddress
import os
import re
import socket
import time
from datetime import timedelta
from pathlib import Path

from torch.distributed import HashStore, TCPStore
from torch.distributed.distributed_c10d import PrefixStore, Store

from bertbench.common.errors import ConfigError, RunError
from bertbench.distributed.loopback import loopback_address, loopback_store
from bertbench.distributed.ranks import AGENT, Ranks

_ROLL_CALL_KEY = "bertbench/roll call"  # empty when all ranks have come, else why the run can't start
_CAME_KEY = "bertbench/came"
_NAMED_RANKS = 8
_LOG_KEY = "bertbench/log"


def meet(ranks: Ranks, timeout_s: int) -> PrefixStore:
    """Wait until all ranks have come; return their key-value store.

    Raises RunError that names the ranks that didn't come within `timeout_s`, were started twice, or belong to another
    run; ConfigError if MASTER_ADDR or MASTER_PORT can't be right.
    """
    if ranks.size == 1 and AGENT not in os.environ:  # the agent's store outlives the rank
        return PrefixStore("alone", HashStore())
    missing = [name for name in ("MASTER_ADDR", "MASTER_PORT") if not os.environ.get(name)]
    if missing:
        raise RunError(
            f"{' and '.join(missing)} not set, so {ranks.size} ranks can't meet; "
            "set it to that of the first node, the same on all ranks"
        )
    host, port = _master()
    loopback = loopback_address(host)  # then no other machine needs to connect
    holds_it = ranks.rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    timeout = timedelta(seconds=timeout_s)
    try:
        if holds_it and loopback:
            store = loopback_store(port, timeout, loopback)
        else:  # don't wait for workers here: the roll call waits, and names the missing ones
            store = TCPStore(loopback or host, port, is_master=holds_it, timeout=timeout, wait_for_workers=False)
    except (RuntimeError, ValueError, OSError) as error:
        reason = _unresolved(host) or str(error).splitlines()[0]
        raise RunError(
            f"rank {ranks.rank} of {ranks.size} could not meet the others at {host}:{port} within {timeout_s} s "
            f"({reason}); check that the port is free, that one rank 0 was started there, and that "
            "MASTER_ADDR and MASTER_PORT are the same on all ranks"
        ) from error
    # torchrun's agent keeps its store across restarts: keys of an earlier attempt must not count
    attempt = PrefixStore(f"attempt {_restarts()}", store)
    _call_roll(attempt, ranks, timeout_s)
    return attempt


def _master() -> tuple[str, int]:
    """Return host and port of the store, as MASTER_ADDR and MASTER_PORT name them; raises ConfigError."""
    address, port = os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]
    host = _without_brackets(address)
    if not _is_host(host):
        raise ConfigError(
            f"MASTER_ADDR is {address!r}: expected a host's name or its IP address, and the port in MASTER_PORT; an "
            "address that begins with fe80 needs its interface, as in fe80::1%eth0"
        )
    if not port.strip().isdecimal() or not 0 < int(port) < 2**16:
        raise ConfigError(f"MASTER_PORT is {port!r}: expected 1 to 65535, the same on all ranks")
    return host, int(port)


def _without_brackets(address: str) -> str:
    return address.strip().removeprefix("[").removesuffix("]")


def _is_host(text: str) -> bool:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return re.fullmatch(r"[\w.-]+", text) is not None
    return not address.is_link_local or address.version == 4 or "%" in text


def _unresolved(host: str) -> str | None:
    try:
        socket.getaddrinfo(host, None)
    except OSError as error:
        return f"{socket.gethostname()} can't resolve the name: {error.strerror}"
    return None


def meet_on_loopback() -> bool:
    """Return whether MASTER_ADDR is this machine's loopback, so that all ranks share its network namespace."""
    return loopback_address(_without_brackets(os.environ.get("MASTER_ADDR", ""))) is not None


def on_one_machine(ranks: Ranks) -> bool:
    """Return whether all ranks are on this machine and in one network namespace."""
    return ranks.local_size == ranks.size and meet_on_loopback()


def leave_log(store: PrefixStore, log: Path) -> None:
    """Record a run's log for the ranks that torchrun's agent may start after these."""
    store.underlying_store.set(_LOG_KEY, os.fsencode(log.absolute()).hex())  # a path needn't be UTF-8


def log_left(store: PrefixStore) -> Path | None:
    """Return the log of the run that ranks restarted by torchrun's agent continue; None for a first start."""
    if not _restarts() or not store.underlying_store.check([_LOG_KEY]):
        return None
    return Path(os.fsdecode(bytes.fromhex(store.underlying_store.get(_LOG_KEY).decode())))


def _restarts() -> int:
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def _call_roll(store: Store, ranks: Ranks, timeout_s: int) -> None:
    """Wait until every rank of this run has come once; raise RunError that names the missing ones."""
    size = store.compare_set("bertbench/size", "", str(ranks.size)).decode()
    wrong = None
    if size != str(ranks.size):
        wrong = (
            f"rank {ranks.rank} was started with {ranks.size} ranks, another one with {size}; start all with the same "
            "number"
        )
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
        f"{ranks.size - len(missing)} of {ranks.size} ranks arrived within {timeout_s} s; missing: "
        f"{ranks_text(missing, ranks.size)}; check that every rank was started, and read their logs"
    )


def absent(store: Store, key: str, size: int) -> list[int]:
    """Return the ranks that have not set `key/<rank>`."""
    return [rank for rank in range(size) if not store.check([f"{key}/{rank}"])]


def ranks_text(ranks: list[int], size: int) -> str:
    """Format ranks for a message: the first few, and how many in all."""
    first = ", ".join(map(str, ranks[:_NAMED_RANKS]))
    more = f" and {len(ranks) - _NAMED_RANKS} more" if len(ranks) > _NAMED_RANKS else ""
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {first}{more} of {size}"
