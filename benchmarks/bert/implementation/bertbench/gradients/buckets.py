"""Keep gradients in flat buckets, and weights too if ranks own slices of them. One collective moves one bucket.

The tensors of a bucket follow the order in which the backward pass computes their gradients. `Buckets` describes the
layout; `reducer.py` fills it.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, islice

import torch
from torch import Tensor, distributed, nn

from bertbench.common.errors import ConfigError
from bertbench.config.optimizer import bucket_limits
from bertbench.gradients.exchange import slice_of
from bertbench.model.rounded_weights import RoundedWeights

_ALIGNMENT = 16  # elements of a cache line; GPUs load 16 bytes at a time, and torch.compile copies unaligned weights


def starts_of(sizes: Sequence[int], alignment: int = _ALIGNMENT) -> list[int]:
    """Return the offsets of tensors of these sizes in their bucket, followed by the bucket's end."""
    return list(accumulate((_aligned(size, alignment) for size in sizes), initial=0))


def slice_length(sizes: Sequence[int], slices: int, alignment: int = _ALIGNMENT) -> int:
    """Return the number of elements, including padding, in each slice of a bucket with such tensors."""
    return _aligned(-(-starts_of(sizes, alignment)[-1] // slices), alignment)


def owned(sizes: Sequence[int], ranks: int, place: int) -> int:
    """Return how many elements of tensors, without padding, are in a bucket's slice at `place`."""
    length = slice_length(sizes, ranks)
    slice_begin = place * length
    slice_end = slice_begin + length
    elements = 0
    for start, size in zip(starts_of(sizes)[:-1], sizes, strict=True):
        overlap = min(start + size, slice_end) - max(start, slice_begin)
        elements += max(overlap, 0)
    return elements


def _aligned(elements: int, alignment: int) -> int:
    return -(-elements // alignment) * alignment


def ready_order(model: nn.Module, backward: Callable[[], None]) -> list[nn.Parameter]:
    """Return rank 0's `backward_order` on every rank, and give all ranks the weights of rank 0. Collective.

    All ranks need the same order; otherwise their collectives might not match.
    """
    order = backward_order(model, backward)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    numbers = {parameter: number for number, parameter in enumerate(parameters)}
    order_of_rank_0 = torch.tensor([numbers[parameter] for parameter in order], device=parameters[0].device)
    distributed.broadcast(order_of_rank_0, 0)
    for parameter in parameters:
        distributed.broadcast(parameter.detach(), 0)
    return [parameters[number] for number in order_of_rank_0.tolist()]


def backward_order(model: nn.Module, backward: Callable[[], None]) -> list[nn.Parameter]:
    """Return the trained parameters in the order in which `backward` computes gradients; discard the gradients."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    order: list[nn.Parameter] = []
    hooks = [parameter.register_post_accumulate_grad_hook(order.append) for parameter in parameters]
    backward()
    for hook in hooks:
        hook.remove()
    model.zero_grad(set_to_none=True)
    assert len(order) == len(parameters), "every trained parameter takes part in every step"
    return order


def bucket_table(
    parameters: Sequence[nn.Parameter], bucket_mb: float | None, buckets: int | None = None
) -> list[list[nn.Parameter]]:
    """Return the parameters of each bucket, grouped as in torch's DDP into buckets of `bucket_mb` MiB.

    If `buckets` is given, group them into that many buckets of nearly equal sizes. Raises ConfigError if there are
    fewer parameters than buckets.
    """
    if buckets is not None:
        if buckets > len(parameters):
            raise ConfigError(
                f"communication.buckets {buckets}: the model has {len(parameters)} trained tensors, and each bucket "
                f"needs at least one; set it to at most {len(parameters)}"
            )
        remaining = iter(parameters)
        return [list(islice(remaining, count)) for count in split_evenly(_sizes(parameters), buckets)]
    numbers_by_bucket, _ = distributed._compute_bucket_assignment_by_size(list(parameters), bucket_limits(bucket_mb))
    table = []
    for numbers in numbers_by_bucket:
        table.append([parameters[number] for number in numbers])
    return table


def split_evenly(sizes: Sequence[int], groups: int) -> list[int]:
    """Return how many consecutive tensors of these sizes each group holds, so that total sizes are nearly equal.

    Each group holds at least one tensor. It ends where its size is nearest to an equal share of the elements that
    remain for it and later groups.
    """
    counts: list[int] = []
    first = 0
    for groups_left in range(groups, 0, -1):
        share = sum(sizes[first:]) / groups_left
        most = len(sizes) - first - (groups_left - 1)  # leave one tensor for each later group
        totals = list(accumulate(sizes[first : first + most]))
        nearest = min(range(most), key=lambda last: abs(totals[last] - share))
        counts.append(nearest + 1)
        first += nearest + 1
    counts[-1] += len(sizes) - first
    return counts


class Bucket:
    """Parameters whose gradients one collective moves; `gradients` is flat and can be divided into equal slices."""

    def __init__(self, number: int, parameters: Sequence[nn.Parameter], starts: Sequence[int], flat: Tensor) -> None:
        """Take `starts`, the offsets of the parameters in `flat`, which must contain zeros."""
        self.number = number
        self.parameters = tuple(parameters)
        self.starts = tuple(starts)
        self.gradients = flat
        sizes = _sizes(parameters)
        self.elements = sum(sizes)
        """The number of elements of the parameters, without padding."""
        self.views = list(self.views_of(flat))
        """Each parameter's part of `gradients`."""
        self._gaps = []
        """The padding after each parameter, including the last one."""
        for start, size, next_start in zip(starts, sizes, [*starts[1:], flat.numel()], strict=True):
            if start + size < next_start:
                self._gaps.append(flat[start + size : next_start])

    def views_of(self, flat: Tensor) -> Iterator[Tensor]:
        """Yield each parameter's part of a flat tensor that is laid out like the gradients."""
        for start, parameter in zip(self.starts, self.parameters, strict=True):
            yield flat.narrow(0, start, parameter.numel()).view(parameter.shape)

    @torch.no_grad()
    def take_in(self) -> None:
        """Copy gradients that aren't in the bucket yet into it, in one launch; all parameters must have gradients."""
        destinations = []
        gradients = []
        for view, parameter in zip(self.views, self.parameters, strict=True):
            assert parameter.grad is not None, "every trained parameter takes part in every step"
            if parameter.grad is not view:
                destinations.append(view)
                gradients.append(parameter.grad)
                parameter.grad = view
        if destinations:
            torch._foreach_copy_(destinations, gradients)
        if self._gaps:  # a sum into slices leaves undefined values in the other slices
            torch._foreach_zero_(self._gaps)


class Buckets:
    """All trained parameters of a model, in buckets whose slices different ranks may own."""

    def __init__(
        self, table: Sequence[Sequence[nn.Parameter]], sliced: bool = False, slices: int = 1, place: int = 0
    ) -> None:
        """Hold gradients, and weights if `sliced`, in `slices` slices; this rank owns the slice at `place`."""
        self.slices = slices
        self.place = place
        device = table[0][0].device
        # on a CPU, gradients need no alignment and are packed as closely as in torch's DDP
        alignment = _ALIGNMENT if sliced or device.type == "cuda" else 1
        sizes_by_bucket = [_sizes(parameters) for parameters in table]
        lengths = [slices * slice_length(sizes, slices, alignment) for sizes in sizes_by_bucket]
        flats = torch.zeros(sum(lengths), device=device).split(lengths)
        buckets: list[Bucket] = []
        for parameters, sizes, flat in zip(table, sizes_by_bucket, flats, strict=True):
            starts = starts_of(sizes, alignment)[:-1]
            buckets.append(Bucket(len(buckets), parameters, starts, flat))
        self.all = tuple(buckets)
        self.weights: tuple[Tensor, ...] = ()
        """The flat weights of each bucket, if ranks own slices of the weights."""
        if sliced:
            self._move_weights(torch.zeros(sum(lengths), device=device).split(lengths))

    @property
    def parameters(self) -> list[nn.Parameter]:
        """Return all parameters, bucket by bucket."""
        return [parameter for bucket in self.all for parameter in bucket.parameters]

    def my_slice(self, flat: Tensor) -> Tensor:
        """Return this rank's slice of a bucket's weights or gradients, as a view."""
        return slice_of(flat, self.place, self.slices)

    @torch.no_grad()
    def _move_weights(self, flats: tuple[Tensor, ...]) -> None:
        self.weights = flats
        for bucket, flat in zip(self.all, flats, strict=True):
            for parameter, weight in zip(bucket.parameters, bucket.views_of(flat), strict=True):
                parameter.data = weight.copy_(parameter)


def _sizes(parameters: Sequence[nn.Parameter]) -> list[int]:
    return [parameter.numel() for parameter in parameters]


class ModelWeights:
    """Weights that are whole on every rank, so that there is nothing to wait for or to publish.

    `rounded` holds 16-bit copies of the weights, if products read such. If `written_by_step`, the optimizer writes the
    copies, too.
    """

    def __init__(self, rounded: RoundedWeights | None = None, written_by_step: bool = False) -> None:
        self._rounded = rounded
        self._written_by_step = written_by_step

    def ready(self) -> None:
        """Wait until all weights have arrived."""

    def publish(self) -> None:
        """Start to send this rank's updated weights to the others, or leave that to the next step.

        Copies of the weights on this rank are updated immediately.
        """
        if not self._written_by_step:
            self.refresh()

    def refresh(self) -> None:
        """Update the copies of the weights; call it when something other than the optimizer has written the weights."""
        if self._rounded is not None:
            self._rounded.refresh()

    def replayed(self) -> None:
        """Note that a recorded step has run, whose operations include those of `publish`, but none of its Python."""

    def begin_step(self) -> None:
        """Start to send weights if `publish` has left that to this step."""
