"""Keep the weights on parameter servers: synchronous, with bounded staleness, asynchronous, and with backup workers.

A worker sends its gradient and waits for weights. For each gradient, a shard decides how the weights change and which
workers may continue. It doesn't send anything itself, so that its rules can be tested without processes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from lab.exchange.variant import ELEMENT_BYTES, Formula
from lab.exchange.wire import Wire


class Shard(Protocol):
    """One server's part of the weights, and the rule by which it changes."""

    weights: Tensor
    stalenesses: list[int]
    """The stalenesses so far: one for each answer or each gradient, depending on the rule."""

    def push(self, worker: int, gradient: Tensor) -> list[int]:
        """Take a worker's gradient, and return the workers that get the weights now."""


class Bounded:
    """Lets a worker be at most `bound` steps ahead of the slowest (SSP, Ho et al. 2013); with 0, all are synchronous.

    A staleness is the number of steps by which the slowest worker's gradients lag behind, in the weights that a worker
    receives.
    """

    def __init__(self, elements: int, workers: int, rate: float, bound: int) -> None:
        """Start with weights of zero."""
        self.weights = torch.zeros(elements)
        self.stalenesses: list[int] = []
        self._rate = rate / workers
        self._bound = bound
        self._steps = [0] * workers
        self._waiting: list[int] = []

    def push(self, worker: int, gradient: Tensor) -> list[int]:
        """Add the gradient, and answer all workers that aren't too far ahead."""
        self.weights.sub_(gradient, alpha=self._rate)
        self._steps[worker] += 1
        self._waiting.append(worker)
        slowest = min(self._steps)
        answered = [waiting for waiting in self._waiting if self._steps[waiting] - slowest <= self._bound]
        self._waiting = [waiting for waiting in self._waiting if waiting not in answered]
        self.stalenesses += [self._steps[waiting] - slowest for waiting in answered]
        return answered


class Asynchronous:
    """Answers each worker at once, and divides the rate by 1 + the gradient's staleness (after Zhang et al. 2016).

    A staleness is the number of other workers' gradients that were added since the worker received its weights.
    """

    def __init__(self, elements: int, workers: int, rate: float) -> None:
        """Start with weights of zero."""
        self.weights = torch.zeros(elements)
        self.stalenesses: list[int] = []
        self._rate = rate
        self._version = 0
        self._version_read = [0] * workers

    def push(self, worker: int, gradient: Tensor) -> list[int]:
        """Add the gradient with the corrected rate, and answer its worker."""
        staleness = self._version - self._version_read[worker]
        self.weights.sub_(gradient, alpha=self._rate / (1 + staleness))
        self._version += 1
        self._version_read[worker] = self._version
        self.stalenesses.append(staleness)
        return [worker]


class FirstOfStep:
    """Adds the first `needed` gradients of a step and drops the others (backup workers, Chen et al. 2016).

    A late worker receives the current weights at once and joins the current step. Only gradients of the current step
    are added, so a staleness is always 0; `dropped` counts the other gradients.
    """

    def __init__(self, elements: int, workers: int, rate: float, needed: int, steps: int) -> None:
        """Start with weights of zero; each worker sends `steps` gradients."""
        self.weights = torch.zeros(elements)
        self.stalenesses: list[int] = []
        self.dropped = 0
        self._rate = rate
        self._needed = needed
        self._left = [steps] * workers
        self._sum = torch.zeros(elements)
        self._version = 0
        self._version_read = [0] * workers
        self._waiting: list[int] = []

    def push(self, worker: int, gradient: Tensor) -> list[int]:
        """Add or drop the gradient; when the step is complete, answer all of its workers."""
        self._left[worker] -= 1
        answered = []
        if self._version_read[worker] < self._version:
            self.dropped += 1
            answered.append(worker)
        else:
            self._sum += gradient
            self._waiting.append(worker)
        # workers that have sent their last gradient can't complete a step
        coming = [other for other, left in enumerate(self._left) if left or other in self._waiting]
        if self._waiting and len(self._waiting) >= min(self._needed, len(coming)):
            self._take_step()
            answered += self._waiting
            self._waiting = []
        for other in answered:
            self._version_read[other] = self._version
        return answered

    def _take_step(self) -> None:
        self.weights.sub_(self._sum, alpha=self._rate / len(self._waiting))
        self._sum.zero_()
        self._version += 1
        self.stalenesses += [0] * len(self._waiting)


MakeShard = Callable[[int, float, int], Shard]
"""Makes a shard, given its number of elements, the rate, and the steps of each worker."""


@dataclass(frozen=True)
class ParameterServer:
    """A step in which workers send gradients to `servers` ranks, which hold slices of the weights, and get weights."""

    workers: int
    servers: int
    make_shard: MakeShard
    in_step: bool
    """Whether all workers of a step wait for each other."""

    def formula(self, elements: int) -> Formula:
        """Return the traffic of a step, servers alternately on both hosts: each worker sends and receives N bytes."""
        size = elements * ELEMENT_BYTES
        messages = 2 * self.workers * self.servers
        if not self.in_step:
            return Formula(messages, 2 * self.workers * size)
        crossing = self.workers // 2 * size // self.servers  # to one server, from the workers on the other host
        return Formula(messages, 2 * self.workers * size, 2, 2 * crossing)

    def step(self, wire: Wire, weights: Tensor, gradient: Tensor, rate: float, number: int) -> None:
        """Send each server its slice of the gradient, then receive its slice of the weights."""
        del rate, number  # the servers take the step
        for server, piece in enumerate(gradient.tensor_split(self.servers)):
            wire.send(piece, self.workers + server)
        for server, piece in enumerate(weights.tensor_split(self.servers)):
            wire.receive(piece, self.workers + server)

    def serve(self, wire: Wire, server: int, elements: int, rate: float, steps: int) -> list[int]:
        """Receive every gradient of the run in the order of arrival, and answer the workers that the shard names."""
        slice_elements = len(torch.empty(elements).tensor_split(self.servers)[server])
        shard = self.make_shard(slice_elements, rate, steps)
        gradient = torch.empty(slice_elements)
        for _ in range(self.workers * steps):
            sender = wire.receive(gradient)
            for worker in shard.push(sender, gradient):
                wire.send(shard.weights, worker)
        return shard.stalenesses
