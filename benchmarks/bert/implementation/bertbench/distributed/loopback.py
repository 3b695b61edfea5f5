"""Let the ranks of one machine meet in a store that listens on the loopback address only.

torch's own stores, and so its elastic agent's rendezvous, listen on every address of the machine.
"""

import socket
from datetime import timedelta

from torch.distributed import TCPStore
from torch.distributed.elastic.rendezvous import (
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
    rendezvous_handler_registry,
)

BACKEND = "bertbench loopback"
_ADDRESS = "127.0.0.1"


def loopback_store(port: int, timeout: timedelta = timedelta(minutes=5)) -> TCPStore:
    """Open a store in this process, on `port` or, if 0, a free one. Raises OSError if the port is taken."""
    listener = socket.socket()
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((_ADDRESS, port))
        listener.listen(socket.SOMAXCONN)
    except OSError:
        listener.close()
        raise
    port = listener.getsockname()[1]
    return TCPStore(
        _ADDRESS,
        port,
        is_master=True,
        timeout=timeout,
        wait_for_workers=False,
        master_listen_fd=listener.detach(),  # the store closes it
    )


class _OneMachine(RendezvousHandler):
    """The elastic agent's rendezvous for a single agent: it waits for no other and holds the ranks' store."""

    def __init__(self, parameters: RendezvousParameters) -> None:
        self._run_id = parameters.run_id
        self._store = loopback_store(int(parameters.endpoint.rpartition(":")[2]))
        self._closed = False

    @property
    def use_agent_store(self) -> bool:
        return True

    def get_backend(self) -> str:
        return BACKEND

    def next_rendezvous(self) -> RendezvousInfo:
        return RendezvousInfo(self._store, 0, 1, RendezvousStoreInfo(_ADDRESS, self._store.port))

    def is_closed(self) -> bool:
        return self._closed

    def set_closed(self) -> None:
        self._closed = True

    def num_nodes_waiting(self) -> int:
        return 0

    def get_run_id(self) -> str:
        return self._run_id

    def shutdown(self) -> bool:
        self._closed = True
        return True


rendezvous_handler_registry.register(BACKEND, _OneMachine)
