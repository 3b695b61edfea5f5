"""Update the encoder's matrices by Muon, everything else by Adam (Jordan et al. 2024).

    momentum = mu momentum + (1 - mu) g        direction = (1 - mu) g + mu momentum
    update   = 0.2 sqrt(max(rows, columns)) orthogonalize(direction)
    w       -= rate (update + weight_decay w)

The direction is Nesterov's: it works better than the momentum itself in every case that its authors tested
(kellerjordan.github.io/posts/muon). The factor gives updates a root mean square of 0.2, as in AdamW, so that both
optimizers can use the same learning rate and weight decay (Liu et al. 2025, Muon is Scalable for LLM Training, section
2.2).
Shapes: B matrices of one shape, M rows, N columns.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from bertbench.common.scalars import Scalar
from bertbench.config.optimizer import OptimizerSettings
from bertbench.model import loops
from bertbench.model.bert import Bert
from bertbench.model.logical_tensors import LogicalTensors, matrices_and_vectors
from bertbench.optim.adam import MultiTensorAdam, native_adam_step, subtract
from bertbench.optim.interface import Optimizer

# Keller Jordan's quintic (kellerjordan.github.io/posts/muon). It doesn't converge to 1, which training doesn't need.
# Instead it has the steepest slope at 0 that still brings singular values to between about 0.7 and 1.2.
_LINEAR = 3.4445
_CUBIC = -4.7750
_QUINTIC = 2.0315
_SMALLEST_NORM = 1e-7
# The most elements in each of a batch's four intermediate results. Without the limit, BERT-Large's would take 2 GB.
_ELEMENTS = 2**24
# The most elements of a matrix that fits into a core's cache together with its products. On a Xeon with 2 MB, 512 x 512
# is 1.46 times as fast as by torch's batched products, and 512 x 2,048 is 0.85 times as fast.
_IN_CACHE = 2**18
_ADAMW_RMS = 0.2


def build_muon(
    model: Bert,
    options: OptimizerSettings,
    product: torch.dtype,
) -> tuple["Muon", str]:
    """Return Muon for a model, and a text that describes it.

    Products are computed in the format `product`, bf16 where that is faster.
    """
    fused = model.fused_parameters()
    encoder_matrices, _ = matrices_and_vectors(model.layers.parameters())
    taken = set(encoder_matrices)
    others = [parameter for parameter in model.parameters() if parameter.requires_grad and parameter not in taken]
    adam = MultiTensorAdam(others, options, fused, native_adam_step)
    matrices = LogicalTensors(encoder_matrices, fused)
    text = "Muon for the encoder's matrices, torch's fused Adam for the rest"
    return Muon(matrices, adam, options, product, encoder_matrices[0].device), text


class _Batch(NamedTuple):
    """Matrices of one shape."""

    numbers: list[int]
    """Their indices among all matrices."""
    momenta_BMN: Tensor


class Muon:
    """Runs Muon on matrices (those of one shape in one batch) and another optimizer on the other parameters."""

    def __init__(
        self,
        matrices: LogicalTensors,
        others: Optimizer,
        options: OptimizerSettings,
        product: torch.dtype,
        device: torch.device,
    ) -> None:
        self._matrices = matrices
        self._others = others
        self._options = options
        self._product = product
        numbers_by_shape: dict[torch.Size, list[int]] = {}
        for number, shape in enumerate(matrices.shapes):
            numbers_by_shape.setdefault(shape, []).append(number)
        self._batches = [
            _Batch(numbers, torch.zeros(len(numbers), *shape, device=device))
            for shape, numbers in numbers_by_shape.items()
        ]

    @torch.no_grad()
    def step(self, learning_rate: Scalar, coefficient: Tensor | None = None, taken: Tensor | None = None) -> None:
        """Update the matrices by Muon, then the other parameters; see `interface.Optimizer`."""
        options = self._options.muon
        gradients = self._matrices.gradients()
        updates = list(gradients)
        rate = learning_rate
        share: Scalar = 1 - options.momentum
        if taken is not None:  # in a skipped step, weights and momenta keep their values
            rate = (rate * taken).float()
            share = share * taken
        for numbers, momenta_BMN in self._batches:
            gradients_BMN = torch.stack([gradients[number] for number in numbers]).view(momenta_BMN.shape)
            if taken is not None:
                gradients_BMN.nan_to_num_(0.0, 0.0, 0.0)
            if coefficient is not None:
                gradients_BMN.mul_(coefficient)
            momenta_BMN.lerp_(gradients_BMN, share)
            directions_BMN = gradients_BMN.lerp_(momenta_BMN, options.momentum)
            updates_BMN = orthogonalize(directions_BMN, options.ns_steps, self._product)
            updates_BMN *= _ADAMW_RMS * math.sqrt(max(updates_BMN.shape[1:]))
            for number, update in zip(numbers, updates_BMN, strict=True):
                updates[number] = update
        weights = self._matrices.weights
        torch._foreach_mul_(weights, 1 - rate * self._options.weight_decay)
        subtract(weights, [update.reshape(-1) for update in updates], rate)
        self._others.step(learning_rate, coefficient, taken)

    @torch.no_grad()
    def reset(self) -> None:
        """Zero the momenta, and reset the other optimizer; see `interface.Optimizer`."""
        for batch in self._batches:
            batch.momenta_BMN.zero_()
        self._others.reset()

    def moments(self, names: Mapping[Tensor, str]) -> dict[str, Tensor]:
        """Return the momenta, `<name>.momentum`, and the other optimizer's moments; see `interface.Optimizer`."""
        momenta: dict[int, Tensor] = {}
        for batch in self._batches:
            momenta.update(zip(batch.numbers, batch.momenta_BMN, strict=True))
        by_name = self._matrices.by_name(names, [momenta[number] for number in range(len(momenta))])
        return {f"{name}.momentum": momentum for name, momentum in by_name.items()} | self._others.moments(names)

    def resume(self, steps: Scalar) -> None:
        """Set the other optimizer's count of steps (Muon itself counts none); see `interface.Optimizer`."""
        self._others.resume(steps)


def orthogonalize(matrices_BMN: Tensor, steps: int, number_format: torch.dtype) -> Tensor:
    """Return matrices with the same singular vectors and with singular values near 1; a zero matrix stays zero.

    Products are in `number_format`. Source: Jordan et al. 2024 (Muon).
    """
    rows, columns = matrices_BMN.shape[1:]
    # the Gram matrix of the shorter side is smaller
    wide_BMN = matrices_BMN.mT if rows > columns else matrices_BMN
    result_BMN = torch.empty_like(wide_BMN, memory_format=torch.contiguous_format)
    in_cache = number_format == torch.bfloat16 and rows * columns <= _IN_CACHE
    if in_cache and loops.takes(matrices_BMN.device, matrices_BMN.dtype):
        loops.run(
            "orthogonalize", wide_BMN.contiguous(), result_BMN, *wide_BMN.shape,
            steps, _LINEAR, _CUBIC, _QUINTIC, _SMALLEST_NORM,
        )  # fmt: skip
    else:
        matrices_at_once = max(1, _ELEMENTS // (rows * columns))
        parts = zip(wide_BMN.split(matrices_at_once), result_BMN.split(matrices_at_once), strict=True)
        for part_BMN, result_part_BMN in parts:
            result_part_BMN.copy_(_by_batched_products(part_BMN.to(number_format), steps))
    return result_BMN.mT if rows > columns else result_BMN


def _by_batched_products(wide_BMN: Tensor, steps: int) -> Tensor:
    wide_BMN = wide_BMN / torch.linalg.matrix_norm(wide_BMN, keepdim=True).clamp(min=_SMALLEST_NORM)
    for _ in range(steps):
        gram = wide_BMN @ wide_BMN.mT
        polynomial = torch.baddbmm(gram, gram, gram, beta=_CUBIC, alpha=_QUINTIC)
        wide_BMN = torch.baddbmm(wide_BMN, polynomial, wide_BMN, beta=_LINEAR)
    return wide_BMN
