"""Choose the factors by which tensors are multiplied before they are rounded to fp8: delayed scaling.

Both formats have a sign and 7 bits (Micikevicius et al. 2022, FP8 formats for deep learning, arXiv 2209.05433):

    e4m3   weights and activations   rounds by at most 2^-4 of a number   2^-6 to 448, in even steps below
    e5m2   gradients                 rounds by at most 2^-3               2^-14 to 57,344

These ranges are narrow, so a scale brings a tensor's largest magnitude, its amax, near the format's largest number. A
tensor's own amax is known too late for that: the kernel that computes the tensor would have to read it again. Delayed
scaling takes the amaxes of earlier steps (NVIDIA documents it for Transformer Engine, `recipe.DelayedScaling`):

    scale = 2^floor(log2(largest number of the format / largest amax of the last HISTORY steps))

A power of two, so that only the format rounds. Numbers that exceed the history's amax by more than the floor leaves
room for become the format's largest number, for one step.

An amax that isn't a positive number:
- NaN or infinity: the step counts as 0, and the other steps of the history decide. The tensor itself keeps its NaN.
- 0 in the whole history: the scale stays as it was.

All of it is on the device and nothing is read back, so that CUDA graphs can hold it. Ranks take the largest amax of
all: their state is the same, and a snapshot resumes on any number of them.
Shapes: N rows, C columns; K tensors, three of each linear layer; H steps of the history, the newest first.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

E4M3 = torch.float8_e4m3fn
E5M2 = torch.float8_e5m2
HISTORY = 16
"""Steps. Published BERT submissions take the last one alone; with 16, one small step raises no scale. Not tuned."""
FP8_CAPABILITY = (8, 9)
"""Lowest CUDA compute capability with products in fp8 (CUDA C++ Programming Guide, arithmetic instructions)."""

_MOST = 2.0**126  # a scale's: its inverse is still a normal number


class TensorScaling(NamedTuple):
    """The scale of one tensor, and what this step learns for later ones: three numbers in fp32 on the device."""

    scale: Tensor
    inverse: Tensor
    amax: Tensor
    """The largest magnitude that this step has met so far."""


class LinearScaling(NamedTuple):
    """The scales of a linear layer's operands."""

    input: TensorScaling
    weight: TensorScaling
    gradient: TensorScaling
    """Of the layer's output."""

    def tensors(self) -> tuple[Tensor, ...]:
        """Return all numbers in a row, from which `of` makes the same again."""
        return (*self.input, *self.weight, *self.gradient)

    @classmethod
    def of(cls, tensors: Sequence[Tensor]) -> "LinearScaling":
        """Return the scaling whose `tensors` these are."""
        return cls(TensorScaling(*tensors[:3]), TensorScaling(*tensors[3:6]), TensorScaling(*tensors[6:]))


_FORMATS = {"input": E4M3, "weight": E4M3, "gradient": E5M2}  # by field of LinearScaling


def to_fp8(values: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    """Return values * scale in an fp8 format; magnitudes beyond its largest number become that, NaN stays NaN."""
    largest = torch.finfo(dtype).max
    return (values * scale).clamp(-largest, largest).to(dtype)


def observe(scaling: TensorScaling, values_NC: Tensor) -> None:
    """Let this step's amax cover these values."""
    # rows first: torch's compiler then finds their amaxes in the kernel that computes the rows
    raise_amax(scaling.amax, values_NC.detach().abs().amax(-1))


@torch.library.custom_op("bertbench::raise_amax", mutates_args=("amax",))
def raise_amax(amax: Tensor, magnitudes_N: Tensor) -> None:
    """Let `amax` cover these magnitudes; NaN stays NaN.

    On a GPU it is one launch (model/fp8_kernels.py), where the compiler's own code takes two.
    """
    amax.copy_(torch.maximum(amax, magnitudes_N.amax()))


@raise_amax.register_fake
def _raised(amax: Tensor, magnitudes_N: Tensor) -> None:
    del amax, magnitudes_N


@raise_amax.register_kernel("cuda")
def _raise_by_triton(amax: Tensor, magnitudes_N: Tensor) -> None:
    from bertbench.model.fp8_kernels import run_raise_amax  # noqa: PLC0415 - Triton, which is optional

    run_raise_amax(amax, magnitudes_N.contiguous())


def scales_for(amax_K: Tensor, largest_K: Tensor, otherwise_K: Tensor) -> Tensor:
    """Return the scale for each finite amax by the formula above, and `otherwise_K` where the amax is 0."""
    quotient_K = (largest_K / amax_K).clamp(1 / _MOST, _MOST)
    mantissa_K, _ = torch.frexp(quotient_K)
    power_K = quotient_K / (2 * mantissa_K)  # mantissas are at least 1/2; the quotient is exact
    return torch.where(amax_K > 0, power_K, otherwise_K)


class DelayedScaling:
    """The scales and histories of a model's linear layers."""

    def __init__(self, layers: int, device: torch.device) -> None:
        """Begin with scales of 1 and no history; `start` sets better ones."""
        self.layers = [self._new_layer(device) for _ in range(layers)]
        tensors = [scaling for layer in self.layers for scaling in layer]
        self._amaxes = [scaling.amax for scaling in tensors]
        self._scales = [scaling.scale for scaling in tensors]
        self._inverses = [scaling.inverse for scaling in tensors]
        largest = [torch.finfo(dtype).max for dtype in _FORMATS.values()]
        self._largest_K = torch.tensor(layers * largest, device=device)
        self._history_HK = torch.zeros(HISTORY, len(tensors), device=device)
        self._scale_K = torch.ones(len(tensors), device=device)
        self._start = self._copy()

    @staticmethod
    def _new_layer(device: torch.device) -> LinearScaling:
        # each number has memory of its own: compiled code expects aligned tensors, and copies others
        def number(value: float) -> Tensor:
            return torch.full((), value, device=device)

        return LinearScaling(*(TensorScaling(number(1.0), number(1.0), number(0.0)) for _ in _FORMATS))

    @torch.no_grad()
    def advance(self, agree: Callable[[Tensor], object]) -> None:
        """End a step: its amaxes enter the history, and scales follow. `agree` leaves the largest of all ranks'."""
        amax_K = torch.stack(self._amaxes).nan_to_num(nan=0.0, posinf=0.0)
        agree(amax_K)
        self._history_HK.copy_(torch.cat((amax_K[None], self._history_HK[:-1])))
        self._scale_K.copy_(scales_for(self._history_HK.amax(0), self._largest_K, self._scale_K))
        self.publish()

    @torch.no_grad()
    def publish(self) -> None:
        """Hand the scales to the layers, whose next step begins without amaxes."""
        torch._foreach_copy_(self._scales, list(self._scale_K.unbind()))
        torch._foreach_copy_(self._inverses, list(self._scale_K.reciprocal().unbind()))
        torch._foreach_zero_(self._amaxes)

    def start(self, agree: Callable[[Tensor], object]) -> None:
        """Take the amaxes so far for the history before the first step, to which `reset` returns."""
        self.advance(agree)
        self._start = self._copy()

    @torch.no_grad()
    def reset(self) -> None:
        """Forget all steps."""
        for tensor, at_start in zip(self.state().values(), self._start, strict=True):
            tensor.copy_(at_start)
        self.publish()

    def state(self) -> dict[str, Tensor]:
        """Return the tensors on which later steps depend, without a copy; `publish` after they are restored."""
        return {"fp8.history": self._history_HK, "fp8.scale": self._scale_K}

    def _copy(self) -> list[Tensor]:
        return [tensor.clone() for tensor in self.state().values()]
