"""Cast a weight to fp8 for the products of both passes, in an operator that torch's compiler calls.

The compiler's own code would read the weight again in the backward pass: 50 MB a layer of BERT-Large. On a GPU the
operator is one Triton kernel (model/fp8_kernels.py), elsewhere torch's operations.
Shapes: O features out, I features in.
"""

import torch
from torch import Tensor

from bertbench.model.fp8_scaling import E4M3, raise_amax, to_fp8


@torch.library.custom_op("bertbench::cast_weight", mutates_args=("amax",))
def cast_weight(weight_OI: Tensor, scale: Tensor, amax: Tensor) -> tuple[Tensor, Tensor]:
    """Return weight * scale in e4m3, [O, I], and the same transposed, [I, O]; let `amax` cover the weight."""
    raise_amax(amax, weight_OI.abs())
    weight8_OI = to_fp8(weight_OI, scale, E4M3)
    return weight8_OI, weight8_OI.T.contiguous()


@cast_weight.register_fake
def _cast(weight_OI: Tensor, scale: Tensor, amax: Tensor) -> tuple[Tensor, Tensor]:
    del scale, amax
    outputs, inputs = weight_OI.shape
    return weight_OI.new_empty(outputs, inputs, dtype=E4M3), weight_OI.new_empty(inputs, outputs, dtype=E4M3)


@cast_weight.register_kernel("cuda")
def _cast_by_triton(weight_OI: Tensor, scale: Tensor, amax: Tensor) -> tuple[Tensor, Tensor]:
    from bertbench.model.fp8_kernels import run_cast_weight  # noqa: PLC0415 - Triton, which is optional

    weight8_OI, weight8_IO = _cast(weight_OI, scale, amax)
    run_cast_weight(weight_OI.contiguous(), weight8_OI, weight8_IO, scale, amax)
    return weight8_OI, weight8_IO
