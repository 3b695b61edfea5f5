"""The masked-LM head's product and loss as one function, beside torch's linear layer and cross-entropy."""

import pytest
import torch
from torch.nn import functional

from bertbench.model.head_loss import head_loss
from tests.rounding import gamma, product_bound, unit

ROWS, WORDS, WIDTH = 7, 13, 24
LABELS = torch.tensor([3, -100, 12, 0, 5, 5, -100])
WEIGHT = 0.3  # of the loss, as a trainer's


def inputs(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Hidden states, word embeddings, bias."""
    generator = torch.Generator().manual_seed(1)
    sizes: tuple[tuple[int, ...], ...] = ((ROWS, WIDTH), (WORDS, WIDTH), (WORDS,))
    hidden, word, bias = (torch.randn(size, generator=generator, dtype=torch.float64).to(dtype) for size in sizes)
    return hidden.requires_grad_(), word.requires_grad_(), bias.requires_grad_()


def exact(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Loss and gradients of hidden states, word embeddings and bias, in float64."""
    leaves = [tensor.detach().double().requires_grad_() for tensor in tensors]
    loss = functional.cross_entropy(functional.linear(*leaves), LABELS, ignore_index=-100, reduction="sum")
    return loss, *torch.autograd.grad(WEIGHT * loss, leaves)


def bounds(dtype: torch.dtype, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return how far each of the four may be off in `dtype`, by tests/rounding.py.

    A score that is off by d changes its exponential by a factor of exp(d), and its row's sum by at most as much.
    """
    hidden, word, bias = (tensor.detach().double() for tensor in tensors)
    hidden, matrix = functional.pad(hidden, (0, 1), value=1.0), torch.cat((word, bias[:, None]), 1)
    counted = (LABELS != -100).double()[:, None]
    summed_in = torch.float32 if dtype == torch.bfloat16 else dtype  # a CPU adds up fp16 products in fp16
    loss_in = torch.promote_types(dtype, torch.float32)
    off = product_bound(hidden, matrix.T, dtype, summed_in=summed_in).amax(-1, keepdim=True)
    terms = gamma(2 * WORDS + ROWS + 8, loss_in)
    probabilities = (hidden @ matrix.T).softmax(-1)
    by_scores = (probabilities - functional.one_hot(LABELS.clamp(min=0), WORDS)) * counted
    relative = torch.expm1(2 * off) + terms
    smallest = torch.finfo(dtype).smallest_normal * unit(dtype)  # below that, numbers lose bits
    by_scores_off = counted * ((1 + unit(dtype)) * relative * probabilities + unit(dtype) * by_scores.abs() + smallest)
    to_hidden = product_bound(by_scores, word, dtype, by_scores_off, summed_in)
    to_matrix = product_bound(by_scores.T, hidden, dtype, by_scores_off.T, summed_in)
    loss = ((2 * off + terms * (2 * off + (hidden @ matrix.T).abs().amax(-1, keepdim=True) + 8)) * counted).sum()
    last = 1 + 4 * unit(loss_in)  # gradients are multiplied by the loss's
    return loss, WEIGHT * last * to_hidden, WEIGHT * last * to_matrix[:, :-1], WEIGHT * last * to_matrix[:, -1]


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
    for mine, right, bound in zip(found, exact(*leaves), bounds(dtype, *leaves), strict=True):
        assert bool(((mine - right).abs() <= bound).all())


def test_gradients_keep_the_formats_of_their_tensors_under_autocast() -> None:
    tensors = inputs(torch.float32)
    hidden = tensors[0].detach().bfloat16().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        head_loss(hidden, *tensors[1:], LABELS).backward()
    assert [tensor.grad.dtype for tensor in (hidden, *tensors[1:]) if tensor.grad is not None] == [
        torch.bfloat16, torch.float32, torch.float32,
    ]  # fmt: skip


def test_rows_without_a_label_give_no_gradient_and_no_loss() -> None:
    hidden, word, bias = inputs(torch.float64)
    head_loss(hidden, word, bias, LABELS).backward()
    assert hidden.grad is not None
    assert torch.equal(hidden.grad.abs().sum(1) == 0, LABELS == -100)
    nothing = head_loss(hidden, word, bias, torch.full_like(LABELS, -100))
    assert nothing.item() == 0
