"""Each autograd.Function that torch.compile traces gives the gradients of eager mode, on every supported torch."""

from collections.abc import Callable
from itertools import combinations
from typing import Any

import pytest
import torch
from torch import Tensor

from bertbench.model import compiled_layer, head_loss
from bertbench.model.loss import IGNORED


def drawn(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, dtype=dtype).requires_grad_()


def weight_and_copy(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """A weight, and the copy that products read."""
    weight = drawn(3, 7)
    return weight, weight.detach().to(dtype)


ARGUMENTS: dict[Any, Callable[[torch.dtype], tuple[Any, ...]]] = {
    compiled_layer._Product: lambda dtype: (drawn(5, 7, dtype=dtype), *weight_and_copy(dtype)),
    compiled_layer._Linear: lambda dtype: (drawn(5, 7, dtype=dtype), *weight_and_copy(dtype), drawn(3), True),
    compiled_layer._BiasGelu: lambda dtype: (drawn(5, 7, dtype=dtype), drawn(7)),
    compiled_layer._LayerNorm: lambda dtype: (drawn(5, 7), drawn(7), drawn(7), 1e-12, dtype),
    compiled_layer._Scaled: lambda dtype: (drawn(5, 7, dtype=dtype), torch.randn(7), torch.randn(7)),
    head_loss._HeadLoss: lambda dtype: (drawn(3, 7), drawn(11, 7), drawn(11), torch.tensor([4, IGNORED, 10]), dtype),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("function", ARGUMENTS, ids=lambda function: function.__name__)
def test_gradients_are_eager_s_whichever_outputs_are_used(function: Any, dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    arguments = ARGUMENTS[function](dtype)
    inputs = [value for value in arguments if isinstance(value, Tensor) and value.requires_grad]
    outputs = len(as_tuple(function.apply(*arguments)))
    for used in (some for count in range(1, outputs + 1) for some in combinations(range(outputs), count)):

        def weighted(*arguments: Any, used: tuple[int, ...] = used) -> Tensor:
            results = as_tuple(function.apply(*arguments))
            return sum(((place + 1) * results[place].float().square().sum() for place in used), torch.zeros(()))

        torch._dynamo.reset()
        compiled = torch.compile(weighted, backend="aot_eager", fullgraph=True)
        expected, found = (torch.autograd.grad(run(*arguments), inputs) for run in (weighted, compiled))
        for plain, ours in zip(expected, found, strict=True):
            assert plain.norm() > 0
            assert (ours - plain).norm() <= 4 * torch.finfo(dtype).eps * plain.norm(), used


def as_tuple(results: Any) -> tuple[Tensor, ...]:
    return results if isinstance(results, tuple) else (results,)
