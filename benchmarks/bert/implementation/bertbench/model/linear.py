"""Linear layers; on a CPU their float32 products are oneDNN's where those are faster than torch's own choice.

torch multiplies float32 matrices by MKL; oneDNN, which it has too, it uses for half precision. On an EPYC oneDNN's
products that read the weights, forward and to the input, run at 105 to 109 GFLOP/s a core where MKL's run at 92 to 98
(docs/performance.md). oneDNN makes code for each size that it meets and keeps it: half a millisecond each. So it pays
for wide layers, and for batches of few sizes (loading/filler.py), which `wants_few_sizes` in options.py asks for.

Shapes: N tokens, I features in, O features out.
"""

import platform
from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from bertbench.model.options import LEAST_WIDTH, SIZE_STEP

# An output so much wider than its input, the scores of the vocabulary, is worth a copy of the input that has a size.
_MUCH_WIDER = 16
_HAS_ONEDNN = platform.machine() in ("x86_64", "AMD64") and torch.backends.mkldnn.is_available()


class Linear(nn.Linear):
    """`torch.nn.Linear` by `linear`."""

    def forward(self, input_NI: torch.Tensor) -> torch.Tensor:
        """[N, I] in, [N, O] out."""
        return linear(input_NI, self.weight, self.bias)


def linear(input_NI: torch.Tensor, weight_OI: torch.Tensor, bias_O: torch.Tensor) -> torch.Tensor:
    """Input @ weight.T + bias, by the faster product."""
    if not by_onednn(input_NI, weight_OI):
        return functional.linear(input_NI, weight_OI, bias_O)
    output_NO: torch.Tensor = _ByOneDnn.apply(input_NI, weight_OI, bias_O)
    return output_NO


def by_onednn(input_NI: torch.Tensor, weight_OI: torch.Tensor) -> bool:
    """The decision: float32 on an x86 CPU, as it is and not inside torch.compile, of a static size, wide both ways."""
    return (
        _HAS_ONEDNN
        and input_NI.device.type == "cpu"
        and input_NI.dtype == weight_OI.dtype == torch.float32
        and type(weight_OI) in (torch.Tensor, nn.Parameter)  # not a DTensor, whose parts are on several ranks
        and min(weight_OI.shape) >= LEAST_WIDTH
        and (len(input_NI) % SIZE_STEP == 0 or len(weight_OI) >= _MUCH_WIDER * weight_OI.shape[1])
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
    )


class _ByOneDnn(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, input_NI: torch.Tensor, weight_OI: torch.Tensor, bias_O: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(input_NI, weight_OI)
        rows = len(input_NI)
        if filler := -rows % SIZE_STEP:  # pad copies even where there is nothing to add
            input_NI = functional.pad(input_NI, (0, 0, 0, filler))
        return _product(input_NI, weight_OI, bias_O)[:rows]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_NO: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        input_NI, weight_OI = ctx.saved_tensors
        by_size = len(input_NI) % SIZE_STEP == 0
        to_input_NI = _product(gradient_NO, weight_OI.T, None) if by_size else gradient_NO @ weight_OI
        # to the weights MKL is as fast: oneDNN would copy both sides transposed
        return to_input_NI, gradient_NO.T @ input_NI, gradient_NO.sum(0)


def _product(left_NI: torch.Tensor, right_OI: torch.Tensor, bias_O: torch.Tensor | None) -> torch.Tensor:
    product_NO: torch.Tensor = torch.ops.mkldnn._linear_pointwise(left_NI, right_OI, bias_O, "none", [], "")
    return product_NO
