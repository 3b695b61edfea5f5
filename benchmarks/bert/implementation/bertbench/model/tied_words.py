"""Look words up in the matrix that the masked-LM head multiplies by, with one gradient for both uses.

torch gives a matrix that is used twice two gradients and adds them up. BERT's word embeddings are its largest tensor,
62 MB at medium size: here the lookup's gradient, of some thousand rows, is added to the head's.
Shapes: T tokens, V vocabulary rows, D hidden size.
"""

from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn import functional


def look_up(word_VD: torch.Tensor, tokens_T: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the tokens' rows [T, D], and the matrix for the head, which must use it once."""
    if not _is_plain(word_VD):
        return functional.embedding(tokens_T, word_VD), word_VD
    rows_TD, matrix_VD = _Tied.apply(word_VD, tokens_T)
    return rows_TD, matrix_VD


def _is_plain(word_VD: torch.Tensor) -> bool:
    """Return whether it is a CPU's own parameter: not spread over ranks, not one of torch.func's."""
    return type(word_VD) is nn.Parameter and word_VD.device.type == "cpu"


class _Tied(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, word_VD: torch.Tensor, tokens_T: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        ctx.save_for_backward(tokens_T)
        return word_VD.index_select(0, tokens_T), word_VD.view_as(word_VD)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_rows_TD: torch.Tensor, by_matrix_VD: torch.Tensor) -> tuple[torch.Tensor, None]:
        # The head's one use of the matrix has just made this tensor, and nothing else reads it.
        return by_matrix_VD.index_add_(0, ctx.saved_tensors[0], by_rows_TD), None
