"""Say what every variant of an exchange has: a worker's step, a server's loop, and its traffic by hand formula."""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from lab.exchange.wire import Wire

ELEMENT_BYTES = 4
"""Weights and gradients are fp32."""


@dataclass(frozen=True)
class Formula:
    """Traffic of a step by hand formula, on two hosts with half of the workers each."""

    messages: int
    """Of all ranks."""
    bytes: int
    """Of all ranks."""
    rounds: int | None = None
    """Messages between the hosts that wait for each other; None where workers don't step together."""
    link_bytes: int | None = None
    """Bytes that leave the busier host, plus those that it waits for in turn; None as `rounds`."""

    def seconds(self, latency_s: float, bytes_per_s: float) -> float | None:
        """Return the alpha-beta model's time: a latency a round, and the bytes at the link's rate."""
        if self.rounds is None or self.link_bytes is None:
            return None
        return self.rounds * latency_s + self.link_bytes / bytes_per_s


class Variant(Protocol):
    """A way in which the gradients of W workers meet. Its methods run on every worker, or on every server."""

    @property
    def workers(self) -> int:
        """Return how many ranks compute gradients."""

    @property
    def servers(self) -> int:
        """Return how many ranks after the workers keep weights."""

    @property
    def in_step(self) -> bool:
        """Return whether no worker begins a step before those whose gradients it needs have ended the last."""

    def formula(self, elements: int) -> Formula | None:
        """Return the traffic of a step for `elements` weights; None where a library sends and can't be counted."""

    def step(self, wire: Wire, weights: Tensor, gradient: Tensor, rate: float, number: int) -> None:
        """Do a worker's part of step `number`, from 0: change its weights in place by the gradients that met."""

    def serve(self, wire: Wire, server: int, elements: int, rate: float, steps: int) -> list[int]:
        """Do server number `server`'s part of a run in which each worker takes `steps`; return the stalenesses."""
