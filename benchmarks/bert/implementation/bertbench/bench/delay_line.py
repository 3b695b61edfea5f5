"""A cable that delays: packets of two hosts' TUN devices pass through a process that holds each for a while.

Linux, as root, with /dev/net/tun. It stands in for `tc`'s netem, which many kernels lack.
"""

import fcntl
import os
import select
import struct
import time
from collections import deque
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle
from pathlib import Path

from bertbench.distributed.orphans import die_with_parent

_TUN = Path("/dev/net/tun")
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
_MOST_BYTES = 65_536
MTU = 65_000
"""Few, large packets: the process takes some 20 us for each."""


def obstacle() -> str | None:
    """Why this machine can't delay packets; None if it can."""
    return None if _TUN.exists() else f"found no {_TUN}, which delays packets; use --latency-ms 0"


def open_device(name: str) -> int:
    """Make a network device of this process's namespace, and return the file that its packets come out of."""
    device = os.open(_TUN, os.O_RDWR)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH", name.encode(), _IFF_TUN | _IFF_NO_PI))
    return device


def relay(ends: tuple[Connection, Connection], latency_s: float, parent: int) -> None:
    """Receive a device from each end, then carry packets between the two, each after `latency_s`, until killed."""
    die_with_parent(parent)
    devices = [recv_handle(end) for end in ends]
    waiting: dict[int, deque[tuple[float, bytes]]] = {device: deque() for device in devices}
    while True:
        now = time.monotonic()
        for source, target in (devices, devices[::-1]):
            while waiting[source] and waiting[source][0][0] <= now:
                _, packet = waiting[source].popleft()
                with suppress(OSError):  # a device that is not up yet, or no more, loses packets as a cable does
                    os.write(target, packet)
        due = [packets[0][0] for packets in waiting.values() if packets]
        ready, _, _ = select.select(devices, [], [], min(due) - now if due else None)
        for source in ready:
            try:
                packet = os.read(source, _MOST_BYTES)
            except OSError:  # its namespace is gone
                return
            waiting[source].append((time.monotonic() + latency_s, packet))
