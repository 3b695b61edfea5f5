"""The packed gradient of flash attention, with plain operators under torch's names in place of a GPU's."""

import math
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from bertbench.model import flash_gradient
from bertbench.model.attention import flash_attention, plain_attention
from bertbench.model.sequences import Sequences

LENGTHS = [7, 5, 5, 2]
New = Callable[[Tensor], Tensor]


def forward(query: Tensor, key: Tensor, value: Tensor, ends: Tensor, *_: Any, **__: Any) -> tuple[Tensor, ...]:
    context = torch.cat([(each @ value.transpose(0, 1)[:, at]).transpose(0, 1) for at, each in rows(query, key, ends)])
    return context, torch.zeros(query.shape[1], len(query)), torch.zeros(2), torch.zeros(0), torch.zeros(0)


def rows(query: Tensor, key: Tensor, ends: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """The probabilities of each sequence, [H, N, N]."""
    for begin, end in pairwise(ends.tolist()):
        scores = query[begin:end].transpose(0, 1) @ key[begin:end].permute(1, 2, 0) / math.sqrt(query.shape[-1])
        yield slice(begin, end), scores.softmax(-1)


def backward_into(new: New) -> Callable[..., tuple[Tensor, ...]]:
    """The gradients of query, key and value, each in memory that `new` makes like it."""

    def backward(
        gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, _: Tensor, __: Tensor, ends: Tensor, *more: Any,
        **options: Any,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        del more, options
        results = new(query), new(key), new(value)
        for at, probabilities in rows(query, key, ends):
            outer, q, k, v = (tensor[at].transpose(0, 1) for tensor in (gradient, query, key, value))
            by_probabilities = outer @ v.mT
            summed = (by_probabilities * probabilities).sum(-1, keepdim=True)
            by_scores = probabilities * (by_probabilities - summed) / math.sqrt(q.shape[-1])
            of_each = by_scores @ k, by_scores.mT @ q, probabilities.mT @ outer
            for result, found in zip(results, of_each, strict=True):
                result[at] = found.transpose(0, 1)
        return results

    return backward


def refuses_slices(like: Tensor) -> Tensor:
    memory = torch.empty_like(like)
    if not memory.is_contiguous():
        raise RuntimeError("expected contiguous memory")
    return memory


def elsewhere(like: Tensor) -> Tensor:
    return torch.empty(like.shape, dtype=like.dtype)


def only_contiguous(like: Tensor) -> Tensor:
    """Memory in which a kernel writes as if its rows were close together."""
    memory = torch.empty_like(like)
    return memory.as_strided(memory.shape, torch.empty(like.shape).stride())


@pytest.fixture
def operators() -> Iterator[Callable[[New], None]]:
    """Register operators on this CPU whose backward pass takes its memory from a function."""
    library = torch.library.Library("aten", "IMPL")

    def register(new: New) -> None:
        library.impl("_flash_attention_forward", forward, "CPU")
        library.impl("_flash_attention_backward", backward_into(new), "CPU")

    flash_gradient.writes_into_slices.cache_clear()
    yield register
    library._destroy()
    flash_gradient.writes_into_slices.cache_clear()


@pytest.mark.parametrize(("new", "stacks"), [
    (torch.empty_like, False), (elsewhere, True), (refuses_slices, True), (only_contiguous, True),
])  # fmt: skip
def test_gradients_are_plain_attention_s_and_stacked_only_where_slices_do_not_work(
    new: New, stacks: bool, operators: Callable[[New], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    operators(new)
    sequences = Sequences.of(np.array(LENGTHS))
    qkv = torch.randn(sum(LENGTHS), 3, 2, 8, generator=torch.Generator().manual_seed(1), requires_grad=True)
    outer = torch.randn(sum(LENGTHS), 2, 8, generator=torch.Generator().manual_seed(2))
    expected = plain_attention(qkv, sequences, 0.0)
    (expected_gradient,) = torch.autograd.grad(expected, qkv, outer)
    flash_gradient.writes_into_slices(qkv.device)  # it stacks, too
    stacked: list[int] = []
    stack = torch.stack
    monkeypatch.setattr(torch, "stack", lambda *given: (stacked.append(1), stack(*given))[1])
    context = flash_attention(qkv, sequences, 0.0)
    (gradient,) = torch.autograd.grad(context, qkv, outer.mT.contiguous().mT)
    torch.testing.assert_close(context, expected)
    torch.testing.assert_close(gradient, expected_gradient)
    assert gradient.is_contiguous()
    assert bool(stacked) == stacks
