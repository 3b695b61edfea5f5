"""Sum a tensor over the workers by messages: ring, tree and hierarchical all-reduce, and gloo's for comparison.

After each of them, every worker has the same sum. The results of a step therefore differ only by rounding.
Formulas: W workers, a gradient of N bytes, two hosts.
"""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, distributed

from lab.exchange.variant import ELEMENT_BYTES, Formula
from lab.exchange.wire import Wire

RANKS_PER_HOST = 2


def ring(wire: Wire, tensor: Tensor) -> None:
    """Sum in place in 2 (W - 1) rounds. In each round, every rank sends 1 / W of the tensor to the right."""
    chunks = tensor.tensor_split(wire.workers)
    right = (wire.rank + 1) % wire.workers
    left = (wire.rank - 1) % wire.workers
    for number in range(wire.workers - 1):  # reduce-scatter: at its end, this rank has the sum of chunk rank + 1
        outgoing = chunks[(wire.rank - number) % wire.workers]
        partial_sum = chunks[(wire.rank - number - 1) % wire.workers]
        partial_sum += wire.swap(outgoing, right, partial_sum, left)
    for number in range(wire.workers - 1):  # all-gather
        outgoing = chunks[(wire.rank - number + 1) % wire.workers]
        incoming = chunks[(wire.rank - number) % wire.workers]
        incoming.copy_(wire.swap(outgoing, right, incoming, left))


def tree(wire: Wire, tensor: Tensor) -> None:
    """Sum in place in 2 log2 W rounds: recursive halving, then doubling (Thakur et al. 2005); W is a power of two.

    The nearest ranks exchange first, so that the largest pieces don't leave a host.
    """
    segment = tensor
    levels = []
    distance = 1
    while distance < wire.workers:
        partner = wire.rank ^ distance
        lower, upper = segment.tensor_split(2)
        if wire.rank < partner:
            kept = lower
            handed_over = upper
        else:
            kept = upper
            handed_over = lower
        kept += wire.swap(handed_over, partner, kept, partner)
        levels.append((partner, kept, handed_over))
        segment = kept
        distance *= 2
    for partner, kept, handed_over in reversed(levels):
        handed_over.copy_(wire.swap(kept, partner, handed_over, partner))


def hierarchical(wire: Wire, tensor: Tensor) -> None:
    """Sum in place on each of two hosts, then between the first ranks of both, which send the sum to the others."""
    leader = wire.rank - wire.rank % RANKS_PER_HOST
    others = range(leader + 1, leader + RANKS_PER_HOST)
    if wire.rank != leader:
        wire.send(tensor, leader)
        wire.receive(tensor, leader)
        return
    received = tensor.clone()
    for other in others:
        wire.receive(received, other)
        tensor += received
    other_leader = (leader + RANKS_PER_HOST) % wire.workers
    tensor += wire.swap(tensor.clone(), other_leader, tensor, other_leader)
    for other in others:
        wire.send(tensor, other)


def gloo(wire: Wire, tensor: Tensor) -> None:
    """Sum in place by gloo, whose messages aren't counted."""
    distributed.all_reduce(tensor, group=wire.group)


def ring_formula(workers: int, size: int) -> Formula:
    """Return the ring's traffic: in every round, one rank of each host sends to the other host."""
    rounds = 2 * (workers - 1)
    return Formula(rounds * workers, rounds * size, rounds, rounds * size // workers)


def tree_formula(workers: int, size: int) -> Formula:
    """Return the tree's traffic: the last halving and the first doubling pass between the hosts."""
    levels = workers.bit_length() - 1
    crossing = workers // 2 * size // workers  # 1 / W of the tensor from each rank of a host
    return Formula(2 * levels * workers, 2 * (workers - 1) * size, 2, 2 * crossing)


def hierarchical_formula(workers: int, size: int) -> Formula:
    """Return the hierarchical sum's traffic: to the first rank of each host, between those two, and from them."""
    followers = workers - 2
    messages = 2 * followers + 2
    return Formula(messages, messages * size, 1, size)


@dataclass(frozen=True)
class AllReduce:
    """A step in which all workers take the mean of their gradients."""

    workers: int
    reduce: Callable[[Wire, Tensor], None]
    traffic: Callable[[int, int], Formula] | None = None
    """Returns the traffic, given the number of workers and the bytes of a gradient."""
    servers: int = 0
    in_step: bool = True

    def formula(self, elements: int) -> Formula | None:
        """Return the traffic of a step."""
        return None if self.traffic is None else self.traffic(self.workers, elements * ELEMENT_BYTES)

    def step(self, wire: Wire, weights: Tensor, gradient: Tensor, rate: float, number: int) -> None:
        """Sum the gradients over the workers and take the step."""
        del number
        self.reduce(wire, gradient)
        weights.sub_(gradient, alpha=rate / self.workers)

    def serve(self, wire: Wire, server: int, elements: int, rate: float, steps: int) -> list[int]:
        """Do nothing: this variant has no server."""
        del wire, server, elements, rate, steps
        return []
