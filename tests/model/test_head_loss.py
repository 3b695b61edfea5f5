"""The masked-LM head's product and loss as one function, beside torch's linear layer and cross-entropy."""

import pytest
import torch
from torch.nn import functional

from bertbench.model.head_loss import head_loss
from bertbench.model.loss import plain_cross_entropy_sum

ROWS, WORDS, WIDTH = 7, 13, 24
LABELS = torch.tensor([3, -100, 12, 0, 5, 5, -100])
WEIGHT = 0.3  # of the loss, as a trainer's


def inputs(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Hidden states, word embeddings, bias."""
    generator = torch.Generator().manual_seed(1)
    sizes: tuple[tuple[int, ...], ...] = ((ROWS, WIDTH), (WORDS, WIDTH), (WORDS,))
    hidden, word, bias = (torch.randn(size, generator=generator, dtype=torch.float64).to(dtype) for size in sizes)
    return hidden.requires_grad_(), word.requires_grad_(), bias.requires_grad_()


def plain(hidden: torch.Tensor, word: torch.Tensor, bias: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return plain_cross_entropy_sum(functional.linear(hidden, word, bias), labels)


def loss_and_gradients(
    function: object, dtype: torch.dtype, autocast: torch.dtype | None = None, scale: float = 1.0
) -> list[torch.Tensor]:
    assert callable(function)
    tensors = inputs(dtype)
    with torch.autocast("cpu", autocast or torch.bfloat16, enabled=autocast is not None):
        loss = function(*tensors, LABELS)
    (loss * (WEIGHT * scale)).backward()
    gradients = [tensor.grad / scale for tensor in tensors if tensor.grad is not None]
    return [loss.detach().double(), *(gradient.double() for gradient in gradients)]


def exact() -> list[torch.Tensor]:
    return loss_and_gradients(
        lambda hidden, word, bias, labels: functional.cross_entropy(
            hidden @ word.T + bias, labels, ignore_index=-100, reduction="sum"
        ),
        torch.float64,
    )


@pytest.mark.parametrize(("dtype", "relative"), [(torch.float64, 1e-13), (torch.float32, 2e-6)])
def test_loss_and_gradients_are_those_of_a_linear_layer_and_cross_entropy(dtype: torch.dtype, relative: float) -> None:
    torch.testing.assert_close(loss_and_gradients(head_loss, dtype), exact(), rtol=relative, atol=10 * relative)


@pytest.mark.parametrize(
    ("autocast", "scale"), [(torch.bfloat16, 1.0), (torch.float16, 1.0), (torch.float16, 65_536.0)]
)
def test_in_16_bit_it_is_no_further_from_the_exact_answer_than_the_plain_path(
    autocast: torch.dtype, scale: float
) -> None:
    found, usual = (loss_and_gradients(each, torch.float32, autocast, scale) for each in (head_loss, plain))
    for mine, theirs, right in zip(found, usual, exact(), strict=True):
        # by the norm; rounding falls out now better, now worse, and a CPU adds up fp16 products in fp16
        rounding = torch.finfo(autocast).eps * right.norm()
        assert (mine - right).norm() <= max(1.3 * (theirs - right).norm(), rounding)


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
