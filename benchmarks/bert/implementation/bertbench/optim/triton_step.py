"""Run Adam and LAMB on CUDA, by Triton kernels that process chunks of all tensors, whatever their number and sizes.

LAMB reads g, m, v, w and writes m, v, u; it adds up the squares of each tensor's chunks; then it reads u, w and writes
w. This moves 40 bytes for each parameter, in at most 5 launches. The gradient's norm moves 4 more bytes and takes 4
more launches. Adam moves 28 bytes in 2 launches. For 2 more bytes, both write 16-bit copies of the weights that
products read. If gradients were summed in 16 bits, each read of them moves 2 bytes less.

Kernels load the clipping coefficient, the loss scale and the skip flag from device memory, so that a CUDA graph can
replay the kernels.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

from bertbench.config.optimizer import OptimizerSettings
from bertbench.model.logical_tensors import gradients_of
from bertbench.optim.chunks import Chunks, Companions
from bertbench.optim.interface import StepScalars, StepTensors

CHUNK = 8192  # elements for one program: BERT-Large takes 41,000 programs, so the last wave is short
BLOCK = 1024  # elements at a time: 8 in each thread
_SUM_BLOCK = 1024


@triton.jit
def _begin(table, chunk_tensors, chunk_numbers, chunk, CHUNK: tl.constexpr):
    """Return a chunk's tensor, its start within that tensor, and the tensor's size."""
    tensor = tl.load(chunk_tensors + chunk)
    # 32-bit numbers take half the registers of 64-bit ones; the compiler sees that a start is a multiple of CHUNK
    return tensor, tl.load(chunk_numbers + chunk).to(tl.int32) * CHUNK, tl.load(table + tensor).to(tl.int32)


@triton.jit
def _places(start, size, BLOCK: tl.constexpr, ALIGNED: tl.constexpr):
    place = start + tl.arange(0, BLOCK)
    inside = place < size
    if ALIGNED:  # sizes are multiples of 4, so 16 bytes are either inside or outside as a whole: one load
        inside = tl.max_constancy(inside, [4])
    return place, inside


@triton.jit
def _pointer(table, row, tensor, tensors, ALIGNED: tl.constexpr, FORMAT: tl.constexpr = tl.float32):
    pointer = tl.load(table + row * tensors + tensor).to(tl.pointer_type(FORMAT))
    return tl.multiple_of(pointer, 16) if ALIGNED else pointer


@triton.jit
def _exists(table, row, tensor, tensors):
    return tl.load(table + row * tensors + tensor) != 0


@triton.jit
def update_chunks(
    table, chunk_tensors, chunk_numbers, first_chunk, tensors, chunks,
    rate, correction1, correction2, coefficient, taken,
    share1, keep2, share2, epsilon, decay, squares,
    LAMB: tl.constexpr, ROUNDED: tl.constexpr, SUMMED: tl.constexpr, ALIGNED: tl.constexpr, CHUNK: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Advance the moments. Adam then updates the weights; LAMB stores updates in the gradients and squares of chunks.

    ROUNDED is the format of the weights' copies. SUMMED is the format of the gradients that are read instead of the
    fp32 ones. Each is None if the table has no such tensors.
    """
    chunk = first_chunk + tl.program_id(0)
    tensor, start, size = _begin(table, chunk_tensors, chunk_numbers, chunk, CHUNK)
    weights = _pointer(table, 1, tensor, tensors, ALIGNED)
    gradients = _pointer(table, 2, tensor, tensors, ALIGNED)
    firsts = _pointer(table, 3, tensor, tensors, ALIGNED)
    seconds = _pointer(table, 4, tensor, tensors, ALIGNED)
    factor = tl.load(coefficient)
    takes = tl.load(taken) > 0
    c1 = tl.load(correction1)
    c2 = tl.load(correction2)
    lr = tl.load(rate)
    if ROUNDED is not None:
        copies = _pointer(table, 5, tensor, tensors, ALIGNED, ROUNDED)
        has_copy = _exists(table, 5, tensor, tensors)
    summed = gradients
    if SUMMED is not None:
        summed = _pointer(table, 6, tensor, tensors, ALIGNED, SUMMED)
    weight_squares = tl.zeros([BLOCK], tl.float32)
    update_squares = tl.zeros([BLOCK], tl.float32)
    for offset in range(0, CHUNK, BLOCK):
        place, inside = _places(start + offset, size, BLOCK, ALIGNED)
        weight = tl.load(weights + place, inside, 0.0)
        gradient = tl.load(summed + place, inside, 0.0).to(tl.float32) * factor
        first = tl.load(firsts + place, inside, 0.0)
        second = tl.load(seconds + place, inside, 0.0)
        # the gradient of a skipped step may be NaN, so select instead of multiplying by 0
        first = tl.where(takes, first + (gradient - first) * share1, first)
        second = tl.where(takes, second * keep2 + gradient * gradient * share2, second)
        tl.store(firsts + place, first, inside)
        tl.store(seconds + place, second, inside)
        update = tl.div_rn(tl.div_rn(first, c1), tl.sqrt_rn(tl.div_rn(second, c2)) + epsilon) + decay * weight
        if LAMB:
            tl.store(gradients + place, update, inside)
            weight_squares += weight * weight
            update_squares += tl.where(inside, update * update, 0.0)
        else:
            weight = weight - lr * update
            tl.store(weights + place, weight, inside)
            if ROUNDED is not None:
                tl.store(copies + place, weight.to(ROUNDED), inside & has_copy)
    if LAMB:
        tl.store(squares + chunk, tl.sum(weight_squares, 0))
        tl.store(squares + chunks + chunk, tl.sum(update_squares, 0))


@triton.jit
def apply_chunks(
    table, chunk_tensors, chunk_numbers, first_chunk, tensors, rate, norms,
    ROUNDED: tl.constexpr, ALIGNED: tl.constexpr, CHUNK: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Run LAMB's second pass: weights -= rate * |weights| / |updates| * updates; the gradients hold the updates."""
    chunk = first_chunk + tl.program_id(0)
    tensor, start, size = _begin(table, chunk_tensors, chunk_numbers, chunk, CHUNK)
    weights = _pointer(table, 1, tensor, tensors, ALIGNED)
    updates = _pointer(table, 2, tensor, tensors, ALIGNED)
    weight_norm = tl.load(norms + tensor)
    update_norm = tl.load(norms + tensors + tensor)
    known = (weight_norm > 0) & (update_norm > 0)
    factor = tl.load(rate) * tl.where(known, tl.div_rn(weight_norm, tl.where(known, update_norm, 1.0)), 1.0)
    if ROUNDED is not None:
        copies = _pointer(table, 5, tensor, tensors, ALIGNED, ROUNDED)
        has_copy = _exists(table, 5, tensor, tensors)
    for offset in range(0, CHUNK, BLOCK):
        place, inside = _places(start + offset, size, BLOCK, ALIGNED)
        weight = tl.load(weights + place, inside, 0.0)
        update = tl.load(updates + place, inside, 0.0)
        weight = weight - factor * update
        tl.store(weights + place, weight, inside)
        if ROUNDED is not None:
            tl.store(copies + place, weight.to(ROUNDED), inside & has_copy)


@triton.jit
def square_chunks(
    table, chunk_tensors, chunk_numbers, first_chunk, tensors, squares,
    FORMAT: tl.constexpr, ALIGNED: tl.constexpr, CHUNK: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Add up the squares of each chunk, whose numbers are in FORMAT."""
    chunk = first_chunk + tl.program_id(0)
    tensor, start, size = _begin(table, chunk_tensors, chunk_numbers, chunk, CHUNK)
    numbers = _pointer(table, 1, tensor, tensors, ALIGNED, FORMAT)
    total = tl.zeros([BLOCK], tl.float32)
    for offset in range(0, CHUNK, BLOCK):
        place, inside = _places(start + offset, size, BLOCK, ALIGNED)
        number = tl.load(numbers + place, inside, 0.0).to(tl.float32)
        total += number * number
    tl.store(squares + chunk, tl.sum(total, 0))


@triton.jit
def norm_tensors(squares, chunk_ranges, chunks, tensors, norms, BLOCK: tl.constexpr):
    """Compute the norms of tensors from the squares of their chunks, in a fixed order."""
    tensor = tl.program_id(0)
    row = tl.program_id(1)
    total = tl.zeros([BLOCK], tl.float32)
    stop = tl.load(chunk_ranges + tensors + tensor)
    for chunk in range(tl.load(chunk_ranges + tensor), stop, BLOCK):
        place = chunk + tl.arange(0, BLOCK)
        total += tl.load(squares + row * chunks + place, place < stop, 0.0)
    tl.store(norms + row * tensors + tensor, tl.sqrt_rn(tl.sum(total, 0)))


class TritonStep:
    """Take the step of `adam.foreach_step` in at most 5 launches, not counting those that set three numbers a step."""

    def __init__(self) -> None:
        self._plans: dict[int, _Plan] = {}  # one for matrices and one for vectors, by the address of the first weight
        self._scalars: StepScalars | None = None
        self._numbers: list[Tensor] = []

    def __call__(
        self,
        tensors: StepTensors,
        options: OptimizerSettings,
        scalars: StepScalars,
        whole_norms: Callable[[Tensor], Tensor] = lambda norms: norms,
        rounded: Sequence[Tensor | None] = (),
        summed: Sequence[Tensor | None] = (),
    ) -> None:
        """Update weights and moments as `adam.foreach_step` does; overwrite the gradients.

        `rounded` holds 16-bit copies of weights, which the step writes too, or None for a weight without a copy.
        `summed` holds 16-bit gradients, which the step reads instead of the given ones.
        """
        none = [None] * len(tensors.weights)
        companions = (rounded or none, summed or none) if rounded or summed else ()
        address = tensors.weights[0].data_ptr()
        if address not in self._plans or not self._plans[address].chunks.are_of(tensors, companions):
            self._plans[address] = _planned(tensors, 2, companions)
        copy_format = _format_of(rounded)
        chunks, squares, norms = self._plans[address]
        if self._scalars is not scalars:
            self._scalars = scalars
            self._numbers = [
                chunks.number(scalars.learning_rate),
                chunks.number(scalars.correction1),
                chunks.number(scalars.correction2),
                chunks.number(scalars.coefficient),
                chunks.number(scalars.taken),
            ]
        rate = self._numbers[0]
        for first, count, aligned in chunks.launches:
            update_chunks[(count,)](
                *chunks.tables, first, chunks.size, chunks.count, *self._numbers,
                1 - options.beta1, options.beta2, 1 - options.beta2, options.epsilon, options.weight_decay,
                squares, LAMB=options.trust_ratio, ROUNDED=copy_format, SUMMED=_format_of(summed),
                ALIGNED=aligned, CHUNK=CHUNK, BLOCK=BLOCK,
            )  # fmt: skip
        if not options.trust_ratio:
            return
        _norms(chunks, squares, norms)
        tensor_norms = whole_norms(norms)
        for first, count, aligned in chunks.launches:
            apply_chunks[(count,)](
                *chunks.tables, first, chunks.size, rate, tensor_norms,
                ROUNDED=copy_format, ALIGNED=aligned, CHUNK=CHUNK, BLOCK=BLOCK,
            )  # fmt: skip


class TritonNorm:
    """Computes the norm of all parameters' gradients, in at most 3 launches of our kernels and one of torch's."""

    def __init__(self, parameters: Sequence[nn.Parameter], summed: Mapping[Tensor, Tensor] | None = None) -> None:
        """Take the parameters, and their 16-bit gradients if they have such."""
        self._parameters = parameters
        self._summed = summed or {}
        self._plan: _Plan | None = None

    def __call__(self) -> Tensor:
        """Return the norm on the device; every parameter must have a gradient."""
        if self._summed:
            gradients = [[self._summed[parameter] for parameter in self._parameters]]
        else:
            gradients = [gradients_of(self._parameters)]
        if self._plan is None or not self._plan.chunks.are_of(gradients):
            self._plan = _planned(gradients, 1)
        chunks, squares, norms = self._plan
        for first, count, aligned in chunks.launches:
            square_chunks[(count,)](
                *chunks.tables, first, chunks.size, squares,
                FORMAT=_format_of(gradients[0]), ALIGNED=aligned, CHUNK=CHUNK, BLOCK=BLOCK,
            )  # fmt: skip
        _norms(chunks, squares, norms)
        return torch.linalg.vector_norm(norms)


class _Plan(NamedTuple):
    """Chunks, with memory for the results of kernels."""

    chunks: Chunks
    squares: Tensor
    """The squares of each chunk: [rows, chunks]."""
    norms: Tensor
    """The norms of each tensor: [rows, tensors]."""


def _format_of(tensors: Sequence[Tensor | None]) -> tl.dtype | None:
    """Return Triton's type of the tensors, None if there are none."""
    formats = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}
    return next((formats[tensor.dtype] for tensor in tensors if tensor is not None), None)


def _planned(lists: Sequence[Sequence[Tensor]], rows: int, companions: Companions = ()) -> _Plan:
    chunks = Chunks(lists, CHUNK, companions)
    return _Plan(chunks, chunks.new(rows, chunks.count), chunks.new(rows, chunks.size))


def _norms(chunks: Chunks, squares: Tensor, norms: Tensor) -> None:
    norm_tensors[(chunks.size, len(norms))](
        squares, chunks.chunk_ranges, chunks.count, chunks.size, norms, BLOCK=_SUM_BLOCK
    )
