"""Average weights with one neighbour in each step (gossip, D-PSGD of Lian et al. 2017), without a sum or a server.

Neighbours in a ring form pairs: ranks 0 and 1, 2 and 3 in even steps, ranks 1 and 2, 3 and 0 in odd steps. Averaging in
pairs doesn't change the mean of all weights. With four workers, a change reaches all of them in two steps.
"""

from dataclasses import dataclass

from torch import Tensor

from lab.exchange.variant import ELEMENT_BYTES, Formula
from lab.exchange.wire import Wire


@dataclass(frozen=True)
class Gossip:
    """A step by a worker's own gradient, then the mean with one neighbour; the number of workers must be even."""

    workers: int
    servers: int = 0
    in_step: bool = True

    def formula(self, elements: int) -> Formula:
        """Return the traffic of a step: one message of N bytes from each worker; only pairs wait for each other."""
        return Formula(self.workers, self.workers * elements * ELEMENT_BYTES)

    def step(self, wire: Wire, weights: Tensor, gradient: Tensor, rate: float, number: int) -> None:
        """Take the step, then exchange weights with the neighbour of this step and average."""
        weights.sub_(gradient, alpha=rate)
        neighbour = self.neighbour(wire.rank, number)
        weights.add_(wire.swap(weights, neighbour, weights, neighbour)).div_(2)

    def neighbour(self, rank: int, number: int) -> int:
        """Return the rank with which a rank exchanges weights in step `number`."""
        to_the_right = (rank + number) % 2 == 0
        return (rank + (1 if to_the_right else -1)) % self.workers

    def serve(self, wire: Wire, server: int, elements: int, rate: float, steps: int) -> list[int]:
        """Do nothing: this variant has no server."""
        del wire, server, elements, rate, steps
        return []
