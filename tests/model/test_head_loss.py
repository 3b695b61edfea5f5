"""The masked-LM head's product and loss in one function, compared with torch's linear layer and cross-entropy."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from bertbench.model.head_loss import head_loss

ROWS, WORDS, WIDTH = 7, 13, 24
LABELS = torch.tensor([3, -100, 12, 0, 5, 5, -100])
WEIGHT = 0.3  # of the loss, as a trainer's


def inputs(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Hidden states, word embeddings, bias."""
    generator = torch.Generator().manual_seed(1)
    sizes: tuple[tuple[int, ...], ...] = ((ROWS, WIDTH), (WORDS, WIDTH), (WORDS,))
    hidden, word, bias = (torch.randn(size, generator=generator, dtype=torch.float64).to(dtype) for size in sizes)
    return hidden.requires_grad_(), word.requires_grad_(), bias.requires_grad_()


def exact(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Loss and gradients of hidden states, word embeddings and bias, in float64."""
    leaves = [tensor.detach().double().requires_grad_() for tensor in tensors]
    loss = functional.cross_entropy(functional.linear(*leaves), LABELS, ignore_index=-100, reduction="sum")
    return loss, *torch.autograd.grad(WEIGHT * loss, leaves)


@pytest.mark.parametrize(
    ("dtype", "scale"),
    [
        (torch.float64, 1.0),
        (torch.float32, 1.0),
        (torch.bfloat16, 1.0),
        (torch.float16, 1.0),
        (torch.float16, 65_536.0),
    ],
)
def test_loss_and_gradients_are_those_of_a_linear_layer_and_cross_entropy(dtype: torch.dtype, scale: float) -> None:
    """Tensors are float32 under autocast in 16 bits; a loss scale must not overflow."""
    tensors = [tensor.detach().to(torch.promote_types(dtype, torch.float32)) for tensor in inputs(dtype)]
    leaves = [tensor.requires_grad_() for tensor in tensors]
    with torch.autocast("cpu", dtype, enabled=dtype.itemsize == 2):
        loss = head_loss(*leaves, LABELS)
    found = loss, *(gradient / scale for gradient in torch.autograd.grad(loss * (WEIGHT * scale), leaves))
    for mine, right in zip(found, exact(*leaves), strict=True):
        assert (mine - right).norm() <= 8 * torch.finfo(dtype).eps * right.norm(), "sums of 24 roundings"
