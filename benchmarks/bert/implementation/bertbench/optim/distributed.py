"""Shard Adam's and LAMB's state over the ranks: ZeRO's first stage, bucket by bucket (Rajbhandari et al. 2020).

    backward   a bucket is full -> clip it -> reduce-scatter: this rank's slice of the sum      (SlicedDataParallel)
    update     moments and weights of this rank's slices; one all-reduce of the norms in LAMB   (SlicedOptimizer)
    forward    all-gather of a bucket's weights, started after the update; the first module that reads them waits

Each link carries (R - 1) / R of the gradients and of the weights, together as much as an all-reduce of the gradients.
Trust ratios use the norms of whole logical tensors.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import torch
from torch import distributed, nn

from bertbench.common.ranges import ALL_REDUCE, named
from bertbench.optim.adam import MultiTensorAdam
from bertbench.optim.arrivals import Arrivals
from bertbench.optim.buckets import Bucket, Buckets
from bertbench.optim.clip import clipping, contribution_limit
from bertbench.optim.collectives import Exchange, Wait
from bertbench.optim.communication import FORMATS, halve
from bertbench.optim.options import AdamOptions, ClipMode, Compression
from bertbench.optim.slices import LogicalSlices
from bertbench.optim.state import Resumable, Scalar, Step, matrices_and_vectors


class SlicedDataParallel:
    """Clip and sum a model's gradients during the backward pass, into this rank's slices of the buckets.

    It replaces `comm_hook.Reducer` and DDP, which serve optimizers with their whole state on every rank.
    """

    def __init__(
        self,
        model: nn.Module,
        buckets: Buckets,
        exchange: Exchange,
        mode: ClipMode,
        max_norm: float,
        compression: Compression,
        scale: torch.Tensor | None,
    ) -> None:
        self._model, self._buckets, self._exchange = model, buckets, exchange
        self._mode, self._max_norm, self._scale = mode, max_norm, scale
        self._halves: list[torch.Tensor] | None = None
        if compression != "none":
            half = torch.empty_like(buckets.gradients, dtype=FORMATS[compression])
            self._halves = list(half.split([bucket.gradients.numel() for bucket in buckets.buckets]))
        # fp16 is divided before the sum, so that the sum of many ranks stays in range
        self._divisor = buckets.ranks if compression == "fp16" else 1
        self.buckets = tuple(bucket.elements for bucket in buckets.buckets)
        """Elements of each bucket, in the order of reduction."""
        self._waits: list[Wait] = []
        self._active: list[torch.Tensor] = []
        self._arrivals = Arrivals([len(bucket.parameters) for bucket in buckets.buckets], self._full)
        for number, bucket in enumerate(buckets.buckets):
            self._arrivals.watch(number, bucket.parameters)

    def __call__(self, *inputs: object) -> Any:
        """Run the model."""
        return self._model(*inputs)

    def no_sync(self) -> AbstractContextManager[None]:
        """Accumulate gradients without reduction inside the context."""
        return self._arrivals.paused()

    def finish(self) -> torch.Tensor | None:
        """End a step's reduction, after its last backward pass; see `comm_hook.Reducer.finish`."""
        assert self._arrivals.complete, "every trained parameter takes part in every step"
        if self._mode == "before":
            buffers = [bucket.gradients for bucket in self._buckets.buckets]
            factor, active = clipping(buffers, self._limit(buckets=1))
            self._active.append(active)
            for number in range(len(buffers)):
                self._send(number, factor)
        with named(ALL_REDUCE):
            for number, wait in enumerate(self._waits):
                wait()
                self._restore(number)
        decisions = self._active
        self._waits, self._active = [], []
        self._arrivals.begin_step()
        return torch.stack(decisions).mean() if decisions else None

    def norm(self) -> torch.Tensor:
        """Return the norm of the reduced gradient, every element counted once, on the device."""
        own = [self._buckets.own(bucket.gradients) for bucket in self._buckets.buckets]
        # in fp64 the square of a scaled norm stays in range
        square = nn.utils.get_total_norm(own, foreach=True).double().square()
        with named(ALL_REDUCE):
            distributed.all_reduce(square)
        return square.sqrt().float()

    def zero_grad(self, set_to_none: bool) -> None:
        """Make every gradient zero, in place, for the next step."""
        assert not set_to_none, "gradients stay in their buckets"
        self._buckets.gradients.zero_()

    def reset(self) -> None:
        """Do nothing: no state stays between steps."""

    def state(self) -> dict[str, torch.Tensor]:
        """Nothing."""
        return {}

    def _full(self, number: int) -> None:
        if self._mode == "before":  # which needs the whole gradient first
            return
        factor = None
        if self._mode == "bucket":
            factor, active = clipping([self._buckets.buckets[number].gradients], self._limit(len(self.buckets)))
            self._active.append(active)
        self._send(number, factor)

    def _send(self, number: int, factor: torch.Tensor | None) -> None:
        buffer = self._buckets.buckets[number].gradients
        if self._halves is not None:
            halve(buffer, factor, self._divisor, self._halves[number])
            buffer = self._halves[number]
        elif factor is not None:
            buffer.mul_(factor)
        self._waits.append(self._exchange.sum_slice(buffer))

    def _restore(self, number: int) -> None:
        if self._halves is not None:
            own = self._buckets.own(self._buckets.buckets[number].gradients)
            own.copy_(self._buckets.own(self._halves[number]))
            if self._divisor != 1:
                own.mul_(self._divisor)

    def _limit(self, buckets: int) -> float | torch.Tensor:
        limit = contribution_limit(self._max_norm, self._buckets.ranks, buckets)
        return limit if self._scale is None else self._scale * limit


class SlicedOptimizer:
    """Update this rank's slices, and gather all ranks' weights during the next forward pass.

    A called module waits for its weights; other code that reads weights must call `settle` first.
    """

    def __init__(
        self,
        model: nn.Module,
        buckets: Buckets,
        exchange: Exchange,
        local: Resumable,
        joins: Callable[[], object] | None = None,
    ) -> None:
        """Store the parts; `joins` enters the collectives of `local` on a rank where `local` has no tensors."""
        self._buckets, self._exchange = buckets, exchange
        self.local = local
        """The optimizer of this rank's slices."""
        self._joins = joins
        self._waits: dict[int, Wait] = {}
        _wait_before_forward(model, buckets.buckets, self._await)

    @torch.no_grad()
    def step(
        self, learning_rate: Scalar, coefficient: torch.Tensor | None = None, taken: torch.Tensor | None = None
    ) -> None:
        """Update every parameter on every rank; see `state.Optimizer`."""
        self.settle()
        self.local.step(learning_rate, coefficient, taken)
        if self._joins is not None:
            self._joins()
        self.gather()

    def gather(self) -> None:
        """Start gathering all weights from the ranks that own them."""
        for number in reversed(range(len(self._buckets.buckets))):  # roughly the forward pass's reading order
            self._waits[number] = self._exchange.gather(self._buckets.buckets[number].weights)

    def settle(self) -> None:
        """Wait until all weights have arrived."""
        self._await(list(self._waits))

    def _await(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            if wait := self._waits.pop(number, None):
                with named(ALL_REDUCE):
                    wait()

    def reset(self) -> None:
        """Forget all steps, as if the optimizer were new; call it after a warm-up."""
        self.settle()
        self.local.reset()

    def moments(self, names: Mapping[torch.Tensor, str]) -> dict[str, torch.Tensor]:
        """Return the moments of this rank's slices, in the shapes of whole tensors; see `state.Resumable`."""
        return self.local.moments(names)

    def resume(self, steps: Scalar) -> None:
        """See `state.Resumable`."""
        self.local.resume(steps)


def sliced_adam(
    buckets: Buckets,
    options: AdamOptions,
    trust_ratio: bool,
    fused: Mapping[torch.Tensor, int],
    step_with: Callable[["WholeNorms"], Step],
    vector_step: Step | None = None,
) -> tuple[MultiTensorAdam, Callable[[], object] | None]:
    """Return `SlicedOptimizer`'s arguments for Adam and LAMB; LAMB's `step_with` needs norms of whole tensors."""
    parameters = [parameter for bucket in buckets.buckets for parameter in bucket.parameters]
    ratios = WholeNorms(LogicalSlices(buckets, matrices_and_vectors(parameters)[0], fused), buckets.weights)
    hold = partial(LogicalSlices, buckets)
    local = MultiTensorAdam(parameters, options, trust_ratio, fused, step_with(ratios), vector_step, hold)
    if trust_ratio and not ratios.numbers.numel():  # no tensors to step, but it must join the all-reduce of norms
        return local, partial(ratios, buckets.weights.new_zeros(2, 0))
    return local, None


class WholeNorms:
    """Combine norms of this rank's segments into norms of whole logical tensors. Collective."""

    def __init__(self, slices: LogicalSlices, like: torch.Tensor) -> None:
        self.numbers = torch.tensor(slices.numbers, dtype=torch.int64, device=like.device)
        self._squares = torch.zeros(2, slices.tensors, device=like.device)

    def __call__(self, norms: torch.Tensor) -> torch.Tensor:
        """Return whole norms for segments' norms, both [2, segments]."""
        self._squares.zero_().index_copy_(1, self.numbers, norms.square())
        with named(ALL_REDUCE):
            distributed.all_reduce(self._squares)
        return self._squares.index_select(1, self.numbers).sqrt()


def _wait_before_forward(model: nn.Module, buckets: Sequence[Bucket], wait: Callable[[Sequence[int]], None]) -> None:
    """Make every outermost called module wait for the buckets of its parameters.

    A list of modules, such as the encoder's layers, is never called itself: its children are.
    """
    numbers = {parameter: number for number, bucket in enumerate(buckets) for parameter in bucket.parameters}
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
