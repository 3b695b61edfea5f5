"""Sum tensors over the ranks of one machine, in memory that all of them map.

A rank copies its part into a slot of its own, sends each other rank a byte, and adds up all slots once it has a byte
from each. gloo's threads pass each message on, and take 14 times as long for the demo's gradient. These sums don't
overlap with the backward pass, but on a CPU whose cores all compute, nothing could.
"""

import mmap
import os
import secrets
import socket
import sys
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Self

import torch
from torch import Tensor
from torch.distributed.distributed_c10d import Store

PIECE_BYTES = 2**22
"""Size of a slot: larger tensors are summed piece by piece, and every piece stays in the cache."""
_LARGEST_GROUP = 4  # each rank reads every slot, so the time grows with their number, unlike that of a ring
_KEY = "bertbench/shared memory"
_BYTE = b"\1"
_MEET = timedelta(seconds=20)


class SharedMemory:
    """The memory of one group of ranks, and this rank's connections to the others.

    Two sets of slots are used alternately. A rank that writes to one set has received a byte from every other rank for
    the other set, which those ranks sent after they had read this one.
    """

    def __init__(self, rank: int, connections: dict[int, socket.socket], file: int, timeout: timedelta) -> None:
        """Map `file`, an open file's descriptor; `connections` go to every other rank."""
        self._rank = rank
        self._connections = connections
        self._count = 0
        for connection in connections.values():
            connection.settimeout(timeout.total_seconds())
        size = len(connections) + 1
        memory = mmap.mmap(file, _length(size))
        self._slots = torch.frombuffer(memory, dtype=torch.uint8).view(2, size, PIECE_BYTES)

    @classmethod
    def join(cls, store: Store, rank: int, size: int, timeout: timedelta) -> Self | None:
        """Meet the other ranks, all on this machine; each must call it. None if this is impossible or wouldn't help.

        `timeout` is that of a sum.
        """
        if not 1 < size <= _LARGEST_GROUP or not hasattr(os, "memfd_create"):
            return None
        connections: dict[int, socket.socket] = {}
        try:
            file = _connect(store, rank, size, connections)
            shared = cls(rank, connections, file, timeout)
            os.close(file)
        except (OSError, RuntimeError) as error:  # OSError: a limit or a sandbox; RuntimeError: a rank didn't come
            shared = None
            if isinstance(error, OSError) and error.errno:
                why = f"rank {rank}: no memory to share ({error.strerror})"
                print(f"warning: {why}; see `ulimit -f`; sums use gloo, which is slower", file=sys.stderr, flush=True)
        store.set(f"{_KEY}/{rank} can", str(int(shared is not None)))
        if all(int(store.get(f"{_KEY}/{peer} can")) for peer in range(size)):
            return shared
        _close(connections)
        return None

    @property
    def begun(self) -> int:
        """Return how many pieces this rank has begun to sum."""
        return self._count

    def sum(self, tensor: Tensor) -> None:
        """Sum a contiguous CPU tensor over the ranks in place, always in the ranks' order; every rank must call it.

        Raises RuntimeError if another rank has gone or is silent.
        """
        for piece in tensor.view(-1).split(PIECE_BYTES // tensor.element_size()):
            slots = self._slots[self._count % 2].view(tensor.dtype)[:, : len(piece)]
            slots[self._rank] = piece
            self._count += 1
            self._meet()
            torch.add(slots[0], slots[1], out=piece)
            for slot in slots[2:]:
                piece.add_(slot)

    def close(self) -> None:
        """Close the connections: a rank that still waits gets an error."""
        _close(self._connections)

    def _meet(self) -> None:
        """Wait until every rank is here."""
        for peer, connection in self._connections.items():
            _call(peer, partial(connection.send, _BYTE))
        for peer, connection in self._connections.items():
            _call(peer, partial(connection.recv, 1))


def _call(peer: int, function: Callable[[], int | bytes]) -> None:
    try:
        if function():
            return
    except TimeoutError as error:
        raise RuntimeError(f"Timed out: rank {peer} didn't come to a sum") from error
    except OSError:
        pass
    raise RuntimeError(f"Connection closed by peer: rank {peer} has gone")


def _connect(store: Store, rank: int, size: int, connections: dict[int, socket.socket]) -> int:
    """Add a connection to each other rank to `connections`; return the descriptor of the memory that rank 0 makes."""
    if rank == 0:
        store.set(_KEY, secrets.token_hex(16))
    name = store.get(_KEY).decode()
    with _socket() as door:
        door.bind(_address(name, rank))
        door.listen(size)
        store.set(f"{_KEY}/{rank} listens", "")
        for peer in range(rank):
            store.wait([f"{_KEY}/{peer} listens"], _MEET)
            connections[peer] = _socket()
            connections[peer].connect(_address(name, peer))
            connections[peer].send(bytes([rank]))
        for _ in range(rank + 1, size):
            connection, _ = door.accept()
            connection.settimeout(_MEET.total_seconds())
            connections[connection.recv(1)[0]] = connection
    if rank:
        _, files, _, _ = socket.recv_fds(connections[0], 1, 1)
        if not files:
            raise OSError("rank 0 could not make the memory")
        return files[0]
    file = os.memfd_create("bertbench")  # it has no name: the kernel frees it with the last process that maps it
    os.ftruncate(file, _length(size))
    for connection in connections.values():
        socket.send_fds(connection, [_BYTE], [file])
    return file


def _socket() -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    listener.settimeout(_MEET.total_seconds())
    return listener


def _address(name: str, rank: int) -> str:
    return f"\0{name} {rank}"  # in Linux's abstract namespace, so that no file is left behind


def _length(size: int) -> int:
    return 2 * size * PIECE_BYTES


def _close(connections: dict[int, socket.socket]) -> None:
    for connection in connections.values():
        connection.close()
