"""Sum the gradients of a split model over the ranks that hold the same part, and compute norms over all parts.

A bucket of gradients is sent as soon as the last backward pass of a step has filled it, so sending overlaps the rest of
that pass. The gradient's norm, and LAMB's norms of weights and updates, are norms of whole tensors.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, distributed, nn
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors
from torch.distributed._functional_collectives import all_reduce
from torch.distributed.tensor import DTensor, Shard

from bertbench.common.phase_clock import in_phase
from bertbench.common.phases import WAIT
from bertbench.config.optimizer import OptimizerSettings
from bertbench.gradients.buckets import bucket_table
from bertbench.gradients.clip import GradientClip
from bertbench.gradients.reducer import BucketCountdown, Reduced, Reducer
from bertbench.model.logical_tensors import gradients_of, local, matrices_and_vectors
from bertbench.optim.adam import MultiTensorAdam
from bertbench.optim.interface import Optimizer
from bertbench.parallel.process_groups import ProcessGroups


def norm_shares(parameters: Sequence[Tensor], shards: distributed.ProcessGroup) -> Tensor:
    """Return the factors on the tensors' squared norms with which a sum over `shards` counts every element once."""
    copies = distributed.get_world_size(shards)
    factors = [1.0 if _sharded(parameter) else 1 / copies for parameter in parameters]
    return torch.tensor(factors, device=parameters[0].device)


def _sharded(parameter: Tensor) -> bool:
    return isinstance(parameter, DTensor) and any(isinstance(place, Shard) for place in parameter.placements)


class _StartedSum(NamedTuple):
    """The sum of a bucket that has been started."""

    gradients: list[Tensor]
    flat: Tensor
    """A copy of the gradients; the sum replaces it."""
    work: distributed.Work


class SplitReducer(Reducer):
    """Reduces the gradients of this rank's part of the model.

    `words` are the word embeddings on the first and the last stage. Each of the two stages computes a part of their
    gradient, so their bucket waits for the end of the step. For `parameters_of_token_shares`, each tensor-parallel rank
    has the gradient of its share of the tokens only. A gradient is complete after `parts` backward passes. With
    `fully_shard`, FSDP2 sums the gradients during the backward pass.
    """

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        words: nn.Parameter | None,
        groups: ProcessGroups,
        clip: GradientClip,
        fully_shard: bool,
        parts: int,
        parameters_of_token_shares: Sequence[nn.Parameter] = (),
    ) -> None:
        self._parameters_of_token_shares = parameters_of_token_shares
        self._words = words if groups.layout.pipeline > 1 else None
        self._groups = groups
        self._clip = clip
        self._norm_shares = norm_shares(parameters, groups.shards)
        others = [parameter for parameter in parameters if parameter is not self._words]
        filled_in_backward = [] if fully_shard else bucket_table(others[::-1], None)
        self.buckets = list(filled_in_backward)
        """The parameters whose gradients are reduced together, in the order of reduction."""
        gradients_of_buckets = [parts * len(bucket) for bucket in filled_in_backward]
        if self._words is not None:
            self.buckets.append([self._words])
            gradients_of_buckets.append(1)
            if groups.place.pipeline > 0:  # the first stage counts the word embeddings
                number = [parameter is self._words for parameter in parameters].index(True)
                self._norm_shares[number] = 0.0
        elements = []
        for bucket in self.buckets:
            elements.append(sum(local(parameter).numel() for parameter in bucket))
        if not self.buckets:
            elements.append(sum(parameter.numel() for parameter in parameters))
        super().__init__(parameters, elements)
        self._sums: list[_StartedSum] = []
        self._countdown = BucketCountdown(gradients_of_buckets, self._send)
        self._reduces = groups.layout.data > 1 and not fully_shard
        if self._reduces:
            for number, bucket in enumerate(filled_in_backward):
                self._countdown.watch(number, bucket)

    def finish(self) -> Reduced:
        """Wait for the sums of the buckets, and sum the remaining gradients; see `Reducer`."""
        with in_phase(WAIT):
            self._reduce()
            norm = self.norm()
        factor_left, clipped = self._clip.reduced(norm)
        return Reduced(norm, factor_left, clipped)

    @torch.no_grad()
    def _reduce(self) -> None:
        """Sum every gradient over the ranks that have a part of it."""
        if self._words is not None:
            (gradient,) = gradients_of([self._words])
            distributed.all_reduce(gradient, group=self._groups.tied)
        if self._reduces:
            if self._words is not None:  # this gradient is complete now
                self._countdown.arrive(len(self.buckets) - 1)
            self._countdown.end_step()
            for started in self._sums:
                started.work.wait()
                _copy_back(started.flat, started.gradients)
            self._sums = []
        if self._parameters_of_token_shares:
            gradients = gradients_of(self._parameters_of_token_shares)
            # a functional collective, as DTensor's are, so that both are counted under tensor parallelism
            flat = all_reduce(_flatten_dense_tensors(gradients), "sum", self._groups.tensor)
            _copy_back(flat, gradients)

    @torch.no_grad()
    def norm(self) -> Tensor:
        """Return, on the device, the norm of the whole model's gradient; every element counts once."""
        squares = torch.stack(torch._foreach_norm(gradients_of(self._parameters))).square()
        total = squares @ self._norm_shares
        distributed.all_reduce(total, group=self._groups.model)
        return total.sqrt()

    @torch.no_grad()
    def _send(self, number: int) -> None:
        gradients = gradients_of(self.buckets[number])
        flat = _flatten_dense_tensors(gradients)
        work = distributed.all_reduce(flat, group=self._groups.data, async_op=True)
        self._sums.append(_StartedSum(gradients, flat, work))


def build_shard_optimizer(
    parameters: Sequence[nn.Parameter], options: OptimizerSettings, shards: distributed.ProcessGroup
) -> Optimizer:
    """Return Adam or LAMB for this rank's part of the model; the ranks of `shards` hold parts of the same tensors."""
    if not options.trust_ratio or distributed.get_world_size(shards) == 1:
        return MultiTensorAdam(parameters, options)
    matrices, _ = matrices_and_vectors(parameters)
    matrix_shares = norm_shares(matrices, shards)

    def whole_norms(norms: Tensor) -> Tensor:
        squares = norms.square() * matrix_shares
        distributed.all_reduce(squares, group=shards)
        return squares.sqrt()

    return MultiTensorAdam(parameters, options, whole_norms=whole_norms)


def _copy_back(flat: Tensor, gradients: list[Tensor]) -> None:
    torch._foreach_copy_(gradients, list(_unflatten_dense_tensors(flat, gradients)))
