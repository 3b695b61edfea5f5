"""Sum the gradients of a split model over ranks with the same part, and take their norm over all parts.

A bucket of gradients is sent as soon as the last backward pass of a step has filled it, overlapping the rest of it.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, distributed, nn
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors
from torch.distributed._functional_collectives import all_reduce
from torch.distributed.tensor import DTensor, Shard

from bertbench.common.phase_clock import ALL_REDUCE, in_phase
from bertbench.gradients.buckets import bucket_table
from bertbench.gradients.clip import Clip
from bertbench.gradients.reducer import BucketCountdown, Reduced, Reducer
from bertbench.model.logical_tensors import gradients_of, local
from bertbench.parallel.process_groups import ProcessGroups


def shares(parameters: Sequence[Tensor], shards: distributed.ProcessGroup) -> Tensor:
    """Return by what to multiply each tensor's square norm so that its sum over `shards` counts every element once."""
    copies = distributed.get_world_size(shards)
    return torch.tensor([1.0 if _sharded(one) else 1 / copies for one in parameters], device=parameters[0].device)


def _sharded(parameter: Tensor) -> bool:
    return isinstance(parameter, DTensor) and any(isinstance(place, Shard) for place in parameter.placements)


class SplitReducer(Reducer):
    """Reduces the gradients of this rank's part of the model.

    `words` are the word embeddings on the first and the last stage: each of the two computes a part of their gradient,
    so that their bucket waits for the end of the step. `of_shares` are those whose gradient each tensor-parallel rank
    has for its share of the tokens only. A gradient is whole after `parts` backward passes. With `fully_shard`, FSDP2
    sums gradients in the backward pass.
    """

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        words: nn.Parameter | None,
        groups: ProcessGroups,
        clip: Clip,
        fully_shard: bool,
        parts: int,
        of_shares: Sequence[nn.Parameter] = (),
    ) -> None:
        self._of_shares = of_shares
        self._words = words if groups.layout.pipeline > 1 else None
        self._groups, self._clip = groups, clip
        self._shares = shares(parameters, groups.shards)
        others = [parameter for parameter in parameters if parameter is not self._words]
        self.buckets = [] if fully_shard else bucket_table(others[::-1], None)
        """The parameters whose gradients are reduced together, in the order of reduction."""
        counts, in_backward = [parts * len(bucket) for bucket in self.buckets], list(self.buckets)
        if self._words is not None:
            self.buckets.append([self._words])
            counts.append(1)
            if groups.place.pipeline > 0:  # the first stage counts them
                self._shares[[parameter is self._words for parameter in parameters].index(True)] = 0.0
        elements = [sum(local(parameter).numel() for parameter in bucket) for bucket in self.buckets]
        super().__init__(parameters, elements or [sum(parameter.numel() for parameter in parameters)])
        self._sums: list[tuple[list[Tensor], Tensor, distributed.Work]] = []
        self._countdown = BucketCountdown(counts, self._send)
        self._reduces = groups.layout.data > 1 and not fully_shard
        if self._reduces:
            for number, bucket in enumerate(in_backward):
                self._countdown.watch(number, bucket)

    def finish(self) -> Reduced:
        """See `Reducer`."""
        with in_phase(ALL_REDUCE):
            self._reduce()
            norm = self.norm()
        return Reduced(norm, *self._clip.reduced(norm))

    @torch.no_grad()
    def _reduce(self) -> None:
        """Sum every gradient over the ranks that have a part of it."""
        if self._words is not None:
            (gradient,) = gradients_of([self._words])
            distributed.all_reduce(gradient, group=self._groups.tied)
        if self._reduces:
            if self._words is not None:  # they are whole now
                self._countdown.arrive(len(self.buckets) - 1)
            self._countdown.end_step()
            for gradients, flat, work in self._sums:
                work.wait()
                torch._foreach_copy_(gradients, list(_unflatten_dense_tensors(flat, gradients)))
            self._sums = []
        if self._of_shares:
            gradients = gradients_of(self._of_shares)
            # functional, as DTensor's collectives are: both count as tensor parallelism's
            flat = all_reduce(_flatten_dense_tensors(gradients), "sum", self._groups.tensor)
            torch._foreach_copy_(gradients, list(_unflatten_dense_tensors(flat, gradients)))

    @torch.no_grad()
    def norm(self) -> Tensor:
        """Return the norm of the whole model's gradient, every element counted once, on the device."""
        squares = torch.stack(torch._foreach_norm(gradients_of(self._parameters))).square()
        total = squares @ self._shares
        distributed.all_reduce(total, group=self._groups.model)
        return total.sqrt()

    @torch.no_grad()
    def _send(self, number: int) -> None:
        gradients = gradients_of(self.buckets[number])
        flat = _flatten_dense_tensors(gradients)
        self._sums.append((gradients, flat, distributed.all_reduce(flat, group=self._groups.data, async_op=True)))
