"""Shard the optimizer's state over the ranks: ZeRO's first stage, bucket by bucket (Rajbhandari et al. 2020).

    backward   a bucket is full -> clip it -> reduce-scatter: this rank's slice of the sum      (reducer.py)
    update     moments and weights of this rank's slices; one all-reduce of the norms in LAMB   (norms_over_slices)
    forward    all-gather of a bucket's weights, started after the update; the first module that reads them waits.
               A recorded step starts it at its own beginning, because a graph must finish what it starts

Each link carries (R - 1) / R of the gradients and of the weights, which is together as much as an all-reduce of the
gradients. Trust ratios use the norms of whole logical tensors. Snapshots store moments with the names and shapes of
whole tensors, so that they fit any number of ranks.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor, distributed, nn

from bertbench.common.phase_clock import in_phase
from bertbench.common.phases import WAIT
from bertbench.distributed.sliced_tensor import SlicedTensor, rectangles
from bertbench.gradients.buckets import Bucket, Buckets, ModelWeights
from bertbench.gradients.exchange import Exchange, Wait
from bertbench.model.encoder import EncoderLayer
from bertbench.model.logical_tensors import LogicalTensors, logical, matrices_and_vectors


class _OwnPiece(NamedTuple):
    """The elements of a logical tensor that lie in this rank's slice of a bucket."""

    parameter: nn.Parameter
    part: int
    """The index of the logical tensor within the parameter."""
    start: int
    """The first element, in the flat logical tensor."""


class _LogicalTensorRange(NamedTuple):
    """The place of a logical tensor in its bucket."""

    parameter: nn.Parameter
    part: int
    begin: int
    end: int


class LogicalSlices(LogicalTensors):
    """This rank's pieces of some parameters.

    `fused` holds the number of logical tensors that a parameter stacks along its first dimension, if more than one.
    """

    def __init__(self, buckets: Buckets, parameters: Sequence[nn.Parameter], fused: Mapping[Tensor, int]) -> None:
        self._counts = {parameter: fused.get(parameter, 1) for parameter in parameters}
        self.tensors = sum(self._counts.values())
        """The number of logical tensors of all the parameters, on all ranks."""
        self.weights = []
        self._gradients = []
        self._pieces: list[_OwnPiece] = []
        for bucket, bucket_weights in zip(buckets.all, buckets.weights, strict=True):
            weights = buckets.my_slice(bucket_weights)
            gradients = buckets.my_slice(bucket.gradients)
            slice_begin = buckets.place * weights.numel()
            slice_end = slice_begin + weights.numel()
            for tensor_range in self._logical_ranges(bucket):
                begin = max(tensor_range.begin, slice_begin)
                end = min(tensor_range.end, slice_end)
                if begin < end:
                    self.weights.append(weights[begin - slice_begin : end - slice_begin])
                    self._gradients.append(gradients[begin - slice_begin : end - slice_begin])
                    self._pieces.append(
                        _OwnPiece(tensor_range.parameter, tensor_range.part, begin - tensor_range.begin)
                    )
        first_numbers = dict(zip(self._counts, accumulate(self._counts.values(), initial=0), strict=False))
        self.numbers = [first_numbers[piece.parameter] + piece.part for piece in self._pieces]
        """For each piece, the index of its logical tensor among those of all the parameters; each occurs once."""

    def _logical_ranges(self, bucket: Bucket) -> Iterator[_LogicalTensorRange]:
        """Yield the place of each logical tensor in a bucket."""
        for parameter, start in zip(bucket.parameters, bucket.starts, strict=True):
            parts = self._counts.get(parameter, 0)
            for part in range(parts):
                length = parameter.numel() // parts
                begin = start + part * length
                yield _LogicalTensorRange(parameter, part, begin, begin + length)

    def gradients(self) -> list[Tensor]:
        """Return the gradients of `weights`, as views of the buckets."""
        return list(self._gradients)

    def by_name(self, names: Mapping[Tensor, str], flat: Sequence[Tensor]) -> dict[str, Tensor]:
        """Return tensors that match `weights`, each as this rank's part of a whole logical tensor."""
        tensors: dict[str, Tensor] = {}
        for piece, tensor in zip(self._pieces, flat, strict=True):
            parameter = piece.parameter
            logical_tensors = logical(names[parameter], parameter.detach(), self._counts[parameter])
            name, logical_tensor = list(logical_tensors.items())[piece.part]
            shape = logical_tensor.shape
            tensors[name] = SlicedTensor(shape, list(rectangles(shape, piece.start, tensor)))
        return tensors


class SlicedWeights(ModelWeights):
    """Weights in buckets. Every rank updates its slices, and each module waits for its weights before it runs."""

    def __init__(self, model: nn.Module, buckets: Buckets, exchange: Exchange) -> None:
        super().__init__()
        self._buckets = buckets
        self._exchange = exchange
        self._waits: dict[int, Wait] = {}
        _wait_before_forward(model, buckets.all, self._await)

    def ready(self) -> None:
        """Wait for the gathers in progress; see `ModelWeights`."""
        self._await(list(self._waits))

    def publish(self) -> None:
        """Start gathering each bucket's weights; see `ModelWeights`."""
        self._gather()

    def _gather(self) -> None:
        for number in reversed(range(len(self._buckets.all))):  # roughly the forward pass's reading order
            self._waits[number] = self._exchange.gather(self._buckets.weights[number])

    def _await(self, numbers: Sequence[int], *_: object) -> None:
        for number in numbers:
            if wait := self._waits.pop(number, None):
                with in_phase(WAIT):
                    wait()


class LateWeights(SlicedWeights):
    """Sliced weights that the next step gathers during its forward pass, or that are gathered earlier if needed.

    If a recorded step gathered weights at its end, it would wait for all of them: 3.3 ms for BERT-Large on eight H100
    (computed). At the beginning of the next step, only the embeddings' bucket must be waited for.

    The gathers are in fp32. In 16 bits, embeddings, biases and LayerNorms, which compute in fp32, would differ between
    the owner of a slice and the other ranks, and evaluations and snapshots would need a second gather. Half of the
    bytes would save only a quarter of a millisecond, because one bucket in six is waited for.
    """

    def __init__(self, model: nn.Module, buckets: Buckets, exchange: Exchange) -> None:
        super().__init__(model, buckets, exchange)
        self._are_late = False

    def ready(self) -> None:
        """Gather the weights that no step has gathered yet, and wait for them. Collective; see `ModelWeights`."""
        if self._are_late:
            self.begin_step()
        super().ready()

    def publish(self) -> None:
        """Leave the gathers to the next step; see `ModelWeights`."""
        self._are_late = True

    def replayed(self) -> None:
        """Note that the next step has to gather; see `ModelWeights`."""
        self._are_late = True

    def begin_step(self) -> None:
        """Start to gather each bucket's weights, even if they have arrived: a recording does the same in every step."""
        self._are_late = False
        self._gather()


def sliced_norm(slices: Sequence[Tensor]) -> Tensor:
    """Return the norm of a gradient on the device, given this rank's slices. Collective."""
    # in fp64, the square of a scaled norm stays in range
    square = nn.utils.get_total_norm(slices, foreach=True).double().square()
    with in_phase(WAIT):
        distributed.all_reduce(square)
    return square.sqrt().float()


def norms_over_slices(buckets: Buckets, fused: Mapping[Tensor, int]) -> Callable[[Tensor], Tensor]:
    """Return a collective function: norms of this rank's pieces of matrices in, norms of whole logical tensors out.

    Both are [2, pieces]; a rank that holds no matrix calls it with no pieces.
    """
    matrices, _ = matrices_and_vectors(buckets.parameters)
    slices = LogicalSlices(buckets, matrices, fused)
    device = buckets.weights[0].device
    numbers = torch.tensor(slices.numbers, dtype=torch.int64, device=device)
    squares = torch.zeros(2, slices.tensors, device=device)

    def whole_norms(norms: Tensor) -> Tensor:
        squares.zero_().index_copy_(1, numbers, norms.to(device).square())
        with in_phase(WAIT):
            distributed.all_reduce(squares)
        return squares.index_select(1, numbers).sqrt()

    return whole_norms


def _wait_before_forward(model: nn.Module, buckets: Sequence[Bucket], wait: Callable[..., None]) -> None:
    """Make every outermost module that is called wait for the buckets of its parameters.

    A list of modules, such as the encoder's layers, is never called itself; its children are.
    """
    numbers = {parameter: bucket.number for bucket in buckets for parameter in bucket.parameters}
    for child in model.children():
        if isinstance(child, nn.ModuleList):
            _wait_before_forward(child, buckets, wait)
        else:
            needed = {numbers[parameter] for parameter in child.parameters() if parameter in numbers}
            wait_for_needed = partial(wait, sorted(needed, reverse=True))
            if isinstance(child, EncoderLayer):  # joined layers run its parts, which no hook of torch's sees
                child.await_weights = wait_for_needed
            else:
                child.register_forward_pre_hook(wait_for_needed)
