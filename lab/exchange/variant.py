"""Define what every variant of an exchange has: a worker's step, a server's loop, and a formula for its traffic."""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from lab.exchange.wire import Wire

ELEMENT_BYTES = 4
"""Weights and gradients are fp32."""


@dataclass(frozen=True)
class Formula:
    """The traffic of a step by a formula, on two hosts with half of the workers each."""

    messages: int
    """Of all ranks."""
    bytes: int
    """Of all ranks."""
    rounds: int | None = None
    """Messages between the hosts that wait for each other; None if workers don't take steps together."""
    link_bytes: int | None = None
    """Bytes that leave the busier host, plus bytes for which it then has to wait; None if `rounds` is None."""

    def seconds(self, latency_s: float, bytes_per_s: float) -> float | None:
        """Return the time by the alpha-beta model: a latency for each round, and the bytes at the link's rate."""
        if self.rounds is None or self.link_bytes is None:
            return None
        return self.rounds * latency_s + self.link_bytes / bytes_per_s


class Variant(Protocol):
    """A way to combine the gradients of W workers. Its methods run on every worker, or on every server."""

    @property
    def workers(self) -> int:
        """Return how many ranks compute gradients."""

    @property
    def servers(self) -> int:
        """Return how many ranks after the workers keep weights."""

    @property
    def in_step(self) -> bool:
        """Return whether a worker begins a step only after the workers whose gradients it needs have ended the last."""

    def formula(self, elements: int) -> Formula | None:
        """Return the traffic of a step for `elements` weights; None if a library sends, which isn't counted."""

    def step(self, wire: Wire, weights: Tensor, gradient: Tensor, rate: float, number: int) -> None:
        """Do a worker's part of step `number`, counted from 0: change its weights in place by combined gradients."""

    def serve(self, wire: Wire, server: int, elements: int, rate: float, steps: int) -> list[int]:
        """Do the part of server `server` in a run in which each worker takes `steps` steps; return the stalenesses."""
