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
from typing import NamedTuple

from torch.distributed import HashStore, TCPStore
from torch.distributed.distributed_c10d import PrefixStore, Store

from bertbench.common.children import AGENT
from bertbench.common.errors import ConfigError, RunError
from bertbench.distributed.loopback import loopback_address, loopback_store
from bertbench.distributed.ranks import Ranks

_ROLL_CALL_KEY = "bertbench/roll call"  # empty when all ranks have come, else why the run can't start
_CAME_KEY = "bertbench/came"
_NAMED = 8
_LOG_KEY = "bertbench/log"


class Comer(NamedTuple):
    """A rank or a node, which comes to a meeting of `size`."""

    kind: str
    number: int
    size: int

    def __str__(self) -> str:
        return f"{self.kind} {self.number} of {self.size}"


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
            "start them by torchrun or by `bertbench launch`"
        )
    host, port = _master()
    holds_it = ranks.rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    comer = Comer("rank", ranks.rank, ranks.size)
    store = open_store(host, port, holds_it, comer, timeout_s)
    attempt = of_attempt(store)
    call_roll(attempt, comer, timeout_s)
    return attempt


def of_attempt(store: Store) -> PrefixStore:
    """Return this attempt's part of a store: torchrun's agent keeps its store across restarts."""
    return PrefixStore(f"attempt {_restarts()}", store)


def open_store(host: str, port: int, holds_it: bool, comer: Comer, timeout_s: int) -> TCPStore:
    """Open the store at `host`, in this process if it holds it. Raises RunError if it can't be reached."""
    loopback = loopback_address(host)  # then no other machine needs to connect
    timeout = timedelta(seconds=timeout_s)
    try:
        if holds_it and loopback:
            return loopback_store(port, timeout, loopback)
        # don't wait for the others here: the roll call waits, and names the missing ones
        return TCPStore(loopback or host, port, is_master=holds_it, timeout=timeout, wait_for_workers=False)
    except (RuntimeError, ValueError, OSError) as error:
        reason = _unresolved(host) or str(error).splitlines()[0]
        raise RunError(
            f"{comer} could not meet the others at {host}:{port} within {timeout_s} s ({reason}); check that the port "
            f"is free, that {comer.kind} 0 was started there once, and that address and port are the same on all"
        ) from error


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


def call_roll(store: Store, comer: Comer, timeout_s: int) -> None:
    """Wait until all of this kind have come once; raise RunError that names the missing ones."""
    size = store.compare_set("bertbench/size", "", str(comer.size)).decode()
    wrong = None
    if size != str(comer.size):
        wrong = (
            f"{comer.kind} {comer.number} was started with {comer.size} {comer.kind}s, another one with {size}; start "
            "all with the same number"
        )
    elif store.add(f"{_CAME_KEY}/{comer.number}", 1) > 1:
        wrong = f"{comer} was started twice (again on {socket.gethostname()}); give every {comer.kind} its own number"
    if wrong is not None:
        store.set(_ROLL_CALL_KEY, wrong)
    elif store.add(_CAME_KEY, 1) == comer.size:
        store.set(_ROLL_CALL_KEY, "")
    try:
        store.wait([_ROLL_CALL_KEY], timedelta(seconds=timeout_s))
        wrong = store.get(_ROLL_CALL_KEY).decode()
    except (RuntimeError, OSError) as error:
        raise RunError(_who_is_missing(store, comer, timeout_s)) from error
    if wrong:
        if comer.number == 0:
            time.sleep(1)  # this process holds the store: let the others read the cause
        raise RunError(wrong)


def end_roll_call(store: Store, cause: str) -> None:
    """End the wait of all who have come, because one won't come."""
    store.compare_set(_ROLL_CALL_KEY, "", cause)


def _who_is_missing(store: Store, comer: Comer, timeout_s: int) -> str:
    try:
        missing = absent(store, _CAME_KEY, comer.size)
    except (RuntimeError, OSError):
        return f"{comer}: {comer.kind} 0 is gone; its message says why"
    if comer.number == 0:
        time.sleep(1)  # this process holds the store: the others still read from it
    return (
        f"{comer.size - len(missing)} of {comer.size} {comer.kind}s arrived within {timeout_s} s; missing: "
        f"{numbers_text(comer.kind, missing, comer.size)}; check that every one was started, and read their logs"
    )


def absent(store: Store, key: str, size: int) -> list[int]:
    """Return the ranks that have not set `key/<rank>`."""
    return [rank for rank in range(size) if not store.check([f"{key}/{rank}"])]


def ranks_text(ranks: list[int], size: int) -> str:
    """Format ranks for a message: the first few, and how many in all."""
    return numbers_text("rank", ranks, size)


def numbers_text(kind: str, numbers: list[int], size: int) -> str:
    """Format the numbers of ranks or nodes for a message: the first few, and how many in all."""
    first = ", ".join(map(str, numbers[:_NAMED]))
    more = f" and {len(numbers) - _NAMED} more" if len(numbers) > _NAMED else ""
    return f"{kind}{'' if len(numbers) == 1 else 's'} {first}{more} of {size}"
