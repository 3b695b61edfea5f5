"""Send tensors from rank to rank by gloo, and count each message where it is sent.

Below every variant: what the table of `lab exchange` says of messages and bytes is counted here.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, distributed


@dataclass
class Wire:
    """This rank's connection with the others."""

    rank: int
    workers: int
    """The first ranks; those after them are parameter servers."""
    group: distributed.ProcessGroup | None = None
    """The workers', for gloo's own all-reduce; None where all ranks work."""
    messages: int = 0
    """Sent by this rank."""
    bytes: int = 0
    """The same, without gloo's and TCP's headers."""

    def send(self, tensor: Tensor, to: int) -> None:
        """Send a contiguous tensor, and wait until it is on its way."""
        self._count(tensor)
        distributed.send(tensor, to)

    def receive(self, tensor: Tensor, source: int | None = None) -> int:
        """Fill the tensor with the next message of `source`, or of any rank; return who sent it."""
        return distributed.recv(tensor, source)

    def swap(self, outgoing: Tensor, to: int, incoming: Tensor, source: int) -> Tensor:
        """Send one tensor while another of the size of `incoming` arrives; return the arrived one."""
        self._count(outgoing)
        arrived = torch.empty_like(incoming)
        sending = distributed.isend(outgoing, to)
        distributed.recv(arrived, source)
        assert sending is not None  # None only outside the group
        sending.wait()
        return arrived

    def _count(self, tensor: Tensor) -> None:
        self.messages += 1
        self.bytes += tensor.nbytes
