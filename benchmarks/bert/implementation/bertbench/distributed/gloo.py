"""Choose the network interface of gloo, torch's library for the collectives of CPU ranks."""

import os
import socket
import sys

from torch.distributed import ProcessGroupGloo

from bertbench.common.errors import ConfigError

INTERFACES = "GLOO_SOCKET_IFNAME"
"""Variable with the names of the network interfaces that gloo may use."""
_TRANSPORT = "GLOO_DEVICE_TRANSPORT"
_LOOPBACK = "lo" if sys.platform == "linux" else "lo0"


def choose_interface(one_machine: bool, prints: bool) -> None:
    """Set GLOO_SOCKET_IFNAME to loopback on one machine, unless it names interfaces that this machine has.

    If it names others, `prints` says whether to print so. Raises ConfigError if it names others and the ranks are on
    several machines, or if GLOO_DEVICE_TRANSPORT names a transport that gloo can't open.
    """
    transport, chosen = os.environ.get(_TRANSPORT), os.environ.get(INTERFACES)
    if transport and not _usable():
        raise ConfigError(
            f"{_TRANSPORT} is {transport!r}: gloo can't open it on any interface of {socket.gethostname()}; unset it"
        )
    unusable = [name for name in (chosen or "").split(",") if name and not _opens(name)]
    if unusable and not one_machine:
        others = ", ".join(name for name in _usable() if name != _LOOPBACK)
        raise ConfigError(
            f"{INTERFACES} is {chosen!r}: {socket.gethostname()} has no interface {' or '.join(map(repr, unusable))} "
            f"with an address; set it to names from {others}, separated by commas, or unset it"
        )
    if unusable and prints:
        print(
            f"{INTERFACES} is {chosen!r}: this machine has {', '.join(_usable())}; its ranks use {_LOOPBACK} instead",
            file=sys.stderr,
            flush=True,
        )
    nothing_chosen = not chosen and sys.platform == "linux"  # on other systems, gloo finds the interface by itself
    if one_machine and (unusable or nothing_chosen):
        os.environ[INTERFACES] = _LOOPBACK


def _usable() -> list[str]:
    """Return the interfaces of this machine that have an address."""
    return [name for _, name in socket.if_nameindex() if _opens(name)]


def _opens(interface: str) -> bool:
    try:
        ProcessGroupGloo.create_device(interface=interface)
    except RuntimeError:
        return False
    return True
