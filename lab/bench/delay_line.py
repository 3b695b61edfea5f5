"""Delay packets between the TUN devices of two hosts, by a process that holds each packet for a fixed time.

This needs Linux, root and /dev/net/tun. It replaces netem of `tc`, which many kernels lack.
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

from bertbench.common.children import die_with_parent

_TUN = Path("/dev/net/tun")
_TUNSETIFF = 0x400454CA
_IFF_TUN = 0x0001
_IFF_NO_PI = 0x1000
_MOST_BYTES = 65_536
MTU = 65_000
"""Packets are few and large, because the process takes about 20 us for each."""


def missing_device() -> str | None:
    """Return why this machine can't delay packets; None if it can."""
    return None if _TUN.exists() else f"found no {_TUN}, which a delay needs; use --latency-ms 0"


def open_device(name: str) -> int:
    """Make a network device in this process's namespace, and return the file from which its packets are read."""
    device = os.open(_TUN, os.O_RDWR)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH", name.encode(), _IFF_TUN | _IFF_NO_PI))
    return device


def relay(parent: int, ends: tuple[Connection, Connection], latency_s: float) -> None:
    """Receive a device from each end, then forward packets between the two after `latency_s`, until it is killed.

    It also ends with the process `parent`, which started it.
    """
    die_with_parent(parent)
    devices = [recv_handle(end) for end in ends]
    waiting: dict[int, deque[tuple[float, bytes]]] = {device: deque() for device in devices}
    while True:
        now = time.monotonic()
        for source, target in (devices, devices[::-1]):
            while waiting[source] and waiting[source][0][0] <= now:
                _, packet = waiting[source].popleft()
                with suppress(OSError):  # a device that is down loses packets, like a cable
                    os.write(target, packet)
        due = [packets[0][0] for packets in waiting.values() if packets]
        ready, _, _ = select.select(devices, [], [], min(due) - now if due else None)
        for source in ready:
            try:
                packet = os.read(source, _MOST_BYTES)
            except OSError:  # the device's namespace is gone
                return
            waiting[source].append((time.monotonic() + latency_s, packet))
