"""Shard the optimizer's state over the ranks: ZeRO's first stage, bucket by bucket (Rajbhandari et al. 2020).

    backward   a bucket is full -> clip it -> reduce-scatter: this rank's slice of the sum      (reducer.py)
    update     moments and weights of this rank's slices; one all-reduce of the norms in LAMB   (norms_over_slices)
    forward    all-gather of a bucket's weights, started after the update; the first module that reads them waits

Each link carries (R - 1) / R of the gradients and of the weights, together as much as an all-reduce of the gradients.
Trust ratios use the norms of whole logical tensors.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch
from torch import distributed, nn

from bertbench.common.ranges import ALL_REDUCE, named
from bertbench.optim.buckets import Bucket, Buckets
from bertbench.optim.exchange import Exchange, Wait
from bertbench.optim.slices import LogicalSlices
from bertbench.optim.state import matrices_and_vectors


class Weights:
    """Weights that are whole on every rank: nothing to wait for, nothing to publish."""

    def ready(self) -> None:
        """Wait until all weights are here."""

    def publish(self) -> None:
        """Start giving this rank's updated weights to the others."""


class SlicedWeights(Weights):
    """Weights in buckets; every rank updates its slices, and each module waits for its weights before it runs."""

    def __init__(self, model: nn.Module, buckets: Buckets, exchange: Exchange) -> None:
        self._buckets, self._exchange = buckets, exchange
        self._waits: dict[int, Wait] = {}
        _wait_before_forward(model, buckets.all, self._await)

    def ready(self) -> None:
        """See `Weights`."""
        self._await(list(self._waits))

    def publish(self) -> None:
        """See `Weights`."""
        for number in reversed(range(len(self._buckets.all))):  # roughly the forward pass's reading order
            self._waits[number] = self._exchange.gather(self._buckets.weights[number])

    def _await(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            if wait := self._waits.pop(number, None):
                with named(ALL_REDUCE):
                    wait()


def sliced_norm(own: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the norm of a gradient on the device, given this rank's slices. Collective."""
    # in fp64 the square of a scaled norm stays in range
    square = nn.utils.get_total_norm(own, foreach=True).double().square()
    with named(ALL_REDUCE):
        distributed.all_reduce(square)
    return square.sqrt().float()


def norms_over_slices(buckets: Buckets, fused: Mapping[torch.Tensor, int]) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a collective function: norms of this rank's segments of matrices in, of whole logical tensors out.

    Both are [2, segments]; a rank that holds no matrix takes part with none.
    """
    matrices, _ = matrices_and_vectors(buckets.parameters)
    slices, device = LogicalSlices(buckets, matrices, fused), buckets.weights[0].device
    numbers = torch.tensor(slices.numbers, dtype=torch.int64, device=device)
    squares = torch.zeros(2, slices.tensors, device=device)

    def whole_norms(norms: torch.Tensor) -> torch.Tensor:
        squares.zero_().index_copy_(1, numbers, norms.to(device).square())
        with named(ALL_REDUCE):
            distributed.all_reduce(squares)
        return squares.index_select(1, numbers).sqrt()

    return whole_norms


def _wait_before_forward(model: nn.Module, buckets: Sequence[Bucket], wait: Callable[[Sequence[int]], None]) -> None:
    """Make every outermost called module wait for the buckets of its parameters.

    A list of modules, such as the encoder's layers, is never called itself: its children are.
    """
    numbers = {parameter: bucket.number for bucket in buckets for parameter in bucket.parameters}
    for child in model.children():
        if isinstance(child, nn.ModuleList):
            _wait_before_forward(child, buckets, wait)
        else:
            needed = sorted(
                {numbers[parameter] for parameter in child.parameters() if parameter in numbers}, reverse=True
            )
            child.register_forward_pre_hook(partial(_call, wait, needed))


def _call(wait: Callable[[Sequence[int]], None], numbers: Sequence[int], *_: object) -> None:
    wait(numbers)
