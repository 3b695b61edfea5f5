"""Let the ranks of one machine meet in a store that listens on the loopback address only.

torch's own stores, and so its elastic agent's rendezvous, listen on every address of the machine.
"""

import socket
from datetime import timedelta

from torch.distributed import TCPStore
from torch.distributed.elastic.rendezvous import (
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
    rendezvous_handler_registry,
)
from torch.distributed.elastic.rendezvous.static_tcp_rendezvous import StaticTCPRendezvous

BACKEND = "bertbench loopback"
_ADDRESS = "127.0.0.1"


def loopback_store(port: int, timeout: timedelta = timedelta(minutes=5)) -> TCPStore:
    """Open a store in this process, on `port` or, if 0, a free one. Raises OSError if the port is taken."""
    listener = socket.create_server((_ADDRESS, port), backlog=socket.SOMAXCONN)
    return TCPStore(
        _ADDRESS,
        listener.getsockname()[1],
        is_master=True,
        timeout=timeout,
        wait_for_workers=False,
        master_listen_fd=listener.detach(),  # the store closes it
    )


class _OneMachine(StaticTCPRendezvous):
    """The elastic agent's rendezvous for a single agent: it waits for no other and holds the ranks' store."""

    def __init__(self, parameters: RendezvousParameters) -> None:
        self._held = loopback_store(int(parameters.endpoint.rpartition(":")[2]))
        super().__init__(_ADDRESS, self._held.port, 0, 1, parameters.run_id, timeout=0)

    def get_backend(self) -> str:
        return BACKEND

    def next_rendezvous(self) -> RendezvousInfo:
        return RendezvousInfo(self._held, self.rank, self.world_size, RendezvousStoreInfo(_ADDRESS, self._held.port))


rendezvous_handler_registry.register(BACKEND, _OneMachine)
