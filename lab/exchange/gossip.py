"""Average weights with one neighbour a step (gossip, D-PSGD of Lian et al. 2017): no sum, no server.

A ring's neighbours pair up: ranks 0 and 1, 2 and 3 in even steps, 1 and 2, 3 and 0 in odd steps. Each pair's mean
leaves the mean of all weights as it was; on four workers, two steps spread a change to all.
"""

from dataclasses import dataclass

from torch import Tensor

from lab.exchange.variant import ELEMENT_BYTES, Formula
from lab.exchange.wire import Wire


@dataclass(frozen=True)
class Gossip:
    """A step by a worker's gradient alone, then the mean with one neighbour; an even number of workers."""

    workers: int
    servers: int = 0
    in_step: bool = True

    def formula(self, elements: int) -> Formula:
        """Return a step's traffic: a message of N bytes from each worker; only pairs wait for each other."""
        return Formula(self.workers, self.workers * elements * ELEMENT_BYTES)

    def step(self, wire: Wire, weights: Tensor, gradient: Tensor, rate: float, number: int) -> None:
        """Take the step, then swap weights with the neighbour of this step."""
        weights.sub_(gradient, alpha=rate)
        neighbour = self.neighbour(wire.rank, number)
        weights.add_(wire.swap(weights, neighbour, weights, neighbour)).div_(2)

    def neighbour(self, rank: int, number: int) -> int:
        """Return with whom a rank swaps in step `number`."""
        to_the_right = (rank + number) % 2 == 0
        return (rank + (1 if to_the_right else -1)) % self.workers

    def serve(self, wire: Wire, server: int, elements: int, rate: float, steps: int) -> list[int]:
        """Do nothing: this variant has no server."""
        del wire, server, elements, rate, steps
        return []
