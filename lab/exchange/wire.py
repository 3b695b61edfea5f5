"""Send tensors from rank to rank by gloo, and count each message where it is sent.

Every variant uses this. The messages and bytes in the table of `lab exchange` are counted here.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, distributed


@dataclass
class Wire:
    """This rank's connection to the others."""

    rank: int
    workers: int
    """The number of workers, which are the first ranks; later ranks are parameter servers."""
    group: distributed.ProcessGroup | None = None
    """The group of workers, for gloo's own all-reduce; None if all ranks are workers."""
    messages: int = 0
    """The number of messages that this rank has sent."""
    bytes: int = 0
    """The bytes that this rank has sent, without the headers of gloo and TCP."""

    def send(self, tensor: Tensor, to: int) -> None:
        """Send a contiguous tensor, and wait until it may be changed again."""
        self._count(tensor)
        distributed.send(tensor, to)

    def receive(self, tensor: Tensor, source: int | None = None) -> int:
        """Fill the tensor with the next message from `source`, or from any rank; return the sender."""
        return distributed.recv(tensor, source)

    def swap(self, outgoing: Tensor, to: int, incoming: Tensor, source: int) -> Tensor:
        """Send one tensor while another, of the size of `incoming`, arrives; return the latter."""
        self._count(outgoing)
        arrived = torch.empty_like(incoming)
        sending = distributed.isend(outgoing, to)
        distributed.recv(arrived, source)
        assert sending is not None  # it is None only for ranks outside the group
        sending.wait()
        return arrived

    def _count(self, tensor: Tensor) -> None:
        self.messages += 1
        self.bytes += tensor.nbytes
