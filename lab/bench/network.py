"""Simulate two hosts on one machine: network namespaces, connected by a virtual cable with limited rate and a delay.

The namespaces have no names, so the kernel removes them and the cable when their processes end for any reason. This
needs Linux, root, and `ip` and `tc` from iproute2.
"""

import ctypes
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.reduction import send_handle
from pathlib import Path
from typing import Any

from torch import multiprocessing

from bertbench.common.children import dying_with_us
from lab.bench.delay_line import MTU, open_device, relay
from lab.spawn import on_ranks

_CLONE_NEWNET = 0x40000000  # os.unshare exists since Python 3.12
DEVICE = "bench0"
_ADDRESSES = ("10.77.0.1", "10.77.0.2")
_PORT = 29500  # always free: the namespace has no other processes
_TRIAL = f"ip link add {DEVICE} type veth && tc qdisc add dev {DEVICE} root tbf rate 1mbit burst 64kb latency 50ms"


def network_obstacle() -> str | None:
    """Return why this machine can't simulate two hosts; None if it can."""
    if missing := [tool for tool in ("ip", "tc", "unshare") if shutil.which(tool) is None]:
        return f"found no {', '.join(missing)}; install iproute2 and util-linux"
    tried = subprocess.run(
        ["unshare", "--net", "sh", "-c", _TRIAL], capture_output=True, text=True, check=False,
        preexec_fn=dying_with_us(),
    )  # fmt: skip
    if tried.returncode:
        reason = " ".join(tried.stderr.split()) or f"exit code {tried.returncode}"
        return f"network namespaces need root ({reason}); run it as root"
    return None


def on_two_hosts(
    function: Callable[..., Any], *arguments: Any, latency_ms: float = 0.0, hosts: Sequence[int] = (0, 1)
) -> Any:
    """Call function(world, *arguments) on CPU ranks of two virtual hosts, and return rank 0's result.

    `hosts` holds the host of each rank, 0 or 1; rank 0 must be on host 0. Packets take `latency_ms` from one host to
    the other.
    """
    os.environ["TORCH_CPP_LOG_LEVEL"] = "ERROR"  # read when ranks load torch; silences warnings about unnamed hosts
    context = multiprocessing.get_context("spawn")
    founders = context.SimpleQueue(), context.SimpleQueue()
    if not latency_ms:
        prepare = partial(become_host, ends=context.Pipe())
        return on_ranks(len(hosts), function, *arguments, prepare=partial(_settle, prepare, hosts, founders))
    (first, first_end), (second, second_end) = context.Pipe(), context.Pipe()
    delaying = context.Process(target=relay, args=(os.getpid(), (first, second), latency_ms / 1e3), daemon=True)
    delaying.start()
    try:
        prepare = partial(_become_far_host, ends=(first_end, second_end))
        return on_ranks(len(hosts), function, *arguments, prepare=partial(_settle, prepare, hosts, founders))
    finally:
        delaying.kill()
        delaying.join()


def limit_bandwidth(mbit: float) -> None:
    """From now on, limit this host's sending rate to `mbit` megabits per second."""
    burst = int(65_536 + mbit * 1e6 / 8 * 0.001)  # bytes sent at once: a packet of 64 KiB and what 1 ms may send
    _run(f"tc qdisc replace dev {DEVICE} root tbf rate {mbit * 1e3:.0f}kbit burst {burst} latency 100ms")


def _settle(become: Callable[[int], None], hosts: Sequence[int], founders: Sequence[Any], rank: int) -> None:
    """Turn this process into its host by `become` if it is the first rank there; otherwise let it join that host."""
    host = hosts[rank]
    if rank == hosts.index(host):
        become(host)
        for _ in range(hosts.count(host) - 1):
            founders[host].put(os.getpid())
    else:
        _join_network(founders[host].get())
    _set_environment(rank, len(hosts))


def become_host(rank: int, ends: tuple[Connection, Connection]) -> None:
    """Turn this process into the host of one of two ranks, with a cable to the other; `ends` are the ends of a pipe."""
    _unshare_network()
    other_rank = ends[rank]
    if rank == 1:  # rank 0 makes the cable when both namespaces exist
        other_rank.send(os.getpid())
        other_rank.recv()
    else:
        _run(f"ip link add {DEVICE} type veth peer name {DEVICE} netns {other_rank.recv()}")
        other_rank.send(None)
    _set_up(rank)
    _set_environment(rank, len(_ADDRESSES))


def _become_far_host(rank: int, ends: tuple[Connection, Connection]) -> None:
    """Do the same as `become_host`, with a delay: a process connects both hosts' devices, received through `ends`."""
    _unshare_network()
    device = open_device(DEVICE)
    send_handle(ends[rank], device, 0)
    _run(f"ip link set {DEVICE} mtu {MTU}")
    _set_up(rank)


def _unshare_network() -> None:
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "unshare")


def _join_network(process: int) -> None:
    """Enter the network namespace of another process."""
    with Path(f"/proc/{process}/ns/net").open() as namespace:
        if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")


def _set_up(host: int) -> None:
    for command in (
        "ip link set lo up",
        f"ip addr add {_ADDRESSES[host]}/24 dev {DEVICE}",
        f"ip link set {DEVICE} up",
    ):
        _run(command)


def _set_environment(rank: int, ranks: int) -> None:
    os.environ.update(
        RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(ranks),
        MASTER_ADDR=_ADDRESSES[0], MASTER_PORT=str(_PORT), GLOO_SOCKET_IFNAME=DEVICE,
    )  # fmt: skip


def _run(command: str) -> None:
    subprocess.run(command.split(), check=True, preexec_fn=dying_with_us())
