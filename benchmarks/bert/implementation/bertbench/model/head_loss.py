"""Compute the masked-LM head's product and loss as one compiled function that reads and writes the scores once.

The forward pass turns each row of scores into its gradient while the row is in cache; the backward pass is two
products. The bias is a column of the output matrix. The product that computes the weights' gradient therefore also
computes the bias's, and no kernel has to read the scores' gradient for it.

Shapes: M masked tokens, V vocabulary rows, D hidden size, E = D + BIAS_COLUMNS.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from bertbench.model.linear import product_type
from bertbench.model.loss import IGNORED
from bertbench.model.options import BIAS_COLUMNS


def head_loss(hidden_MD: Tensor, word_VD: Tensor, bias_V: Tensor, labels_M: Tensor) -> Tensor:
    """Return the sum over rows of -log softmax(hidden @ word.T + bias)[label], without rows whose label is IGNORED.

    Products are computed in autocast's format, everything else in at least float32.
    """
    total: Tensor = _HeadLoss.apply(hidden_MD, word_VD, bias_V, labels_M, product_type(hidden_MD))
    return total


class _HeadLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_MD: Tensor,
        word_VD: Tensor,
        bias_V: Tensor,
        labels_M: Tensor,
        dtype: torch.dtype,
    ) -> Tensor:
        hidden_ME = functional.pad(hidden_MD.to(dtype), (0, BIAS_COLUMNS), value=1.0)
        matrix_VE = torch.cat((word_VD.to(dtype), functional.pad(bias_V.to(dtype)[:, None], (0, BIAS_COLUMNS - 1))), 1)
        scores_MV = hidden_ME @ matrix_VE.T
        wide_MV = scores_MV.to(torch.promote_types(dtype, torch.float32))
        highest_M1 = wide_MV.amax(-1, keepdim=True)
        sums_M1 = (wide_MV - highest_M1).exp().sum(-1, keepdim=True)
        counts_M1 = (labels_M != IGNORED)[:, None]
        # compare within the pass over the row: a lookup would be another kernel, one that reads scattered memory
        is_label_MV = torch.arange(wide_MV.shape[1], device=labels_M.device) == labels_M[:, None]
        label_M1 = torch.where(is_label_MV, wide_MV, 0.0).sum(-1, keepdim=True)
        loss_M1 = torch.where(counts_M1, highest_M1 + sums_M1.log() - label_M1, 0.0)
        gradient_MV = (wide_MV - highest_M1).exp() / sums_M1 - is_label_MV.to(wide_MV.dtype)
        gradient_MV = torch.where(counts_M1, gradient_MV, 0.0).to(dtype)
        ctx.save_for_backward(gradient_MV, hidden_ME, matrix_VE)
        ctx.formats = hidden_MD.dtype, word_VD.dtype
        return loss_M1.sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        gradient_MV, hidden_ME, matrix_VE = ctx.saved_tensors
        hidden_type, weight_type = ctx.formats
        width = hidden_ME.shape[1] - BIAS_COLUMNS
        # the gradient of the loss itself (its weight and the loss scale) is applied where products are cast anyway
        to_hidden_MD = (gradient_MV @ matrix_VE[:, :width]).to(hidden_type) * gradient
        to_matrix_VE = gradient_MV.T @ hidden_ME
        to_word_VD = to_matrix_VE[:, :width].to(weight_type) * gradient
        to_bias_V = to_matrix_VE[:, width].to(weight_type) * gradient
        return to_hidden_MD, to_word_VD, to_bias_V, None, None
