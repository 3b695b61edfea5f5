"""Let the ranks of one machine meet in a store that listens on the loopback address only.

torch's own stores, and therefore the rendezvous of its elastic agent, listen on every address of the machine.
"""

import ipaddress
import socket
from datetime import timedelta

from torch.distributed import TCPStore

from bertbench.common.errors import RunError

_ADDRESS, _ADDRESS_6 = "127.0.0.1", "::1"
_CONNECT_S = 10  # on a busy machine; without loopback, the kernel refuses at once
_NAMES = {"localhost", "localhost.localdomain", "localhost4"}
_NAMES_6 = {"localhost6", "localhost6.localdomain6", "ip6-localhost", "ip6-loopback"}


def loopback_address(host: str) -> str | None:
    """Return the loopback address that `host`, a name or an address, means; None if it means another address.

    A machine's own name doesn't mean loopback, because other machines may use it too. `localhost` needs no entry in
    /etc/hosts; it means ::1 where IPv4 has no loopback.
    """
    name = host.lower().rstrip(".")
    if name in _NAMES:
        return own_address()
    if name in _NAMES_6:
        return _ADDRESS_6
    try:
        address = ipaddress.ip_address(host)
    except ValueError:  # it is some other name
        return None
    plain = getattr(address, "ipv4_mapped", None) or address
    if not plain.is_loopback:
        return None
    return str(plain).partition("%")[0]


def own_address() -> str:
    """Return 127.0.0.1, or ::1 on a machine without it. Raises RunError if no process here can connect to another."""
    for address in (_ADDRESS, _ADDRESS_6):
        if _answers(address):
            return address
    raise RunError(
        f"found neither {_ADDRESS} nor {_ADDRESS_6}, by which the ranks of this machine meet; start its loopback "
        "interface, for example by `ip link set lo up`"
    )


def _answers(address: str) -> bool:
    """Return whether a process can listen on an address and another one connect; with `lo` down, only the former."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.create_server((address, 0), family=family) as server:
            socket.create_connection(server.getsockname()[:2], timeout=_CONNECT_S).close()
    except OSError:
        return False
    return True


def loopback_store(port: int, timeout: timedelta = timedelta(minutes=5), address: str = _ADDRESS) -> TCPStore:
    """Open a store in this process, on `port` or, if 0, a free one. Raises OSError if the port is taken."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.create_server((address, port), family=family, backlog=socket.SOMAXCONN)
    return TCPStore(
        address,
        listener.getsockname()[1],
        is_master=True,
        timeout=timeout,
        wait_for_workers=False,
        master_listen_fd=listener.detach(),  # the store closes it
    )
