"""Padded attention, as other programs compute it, to compare ours with; needs only torch and numpy.

Shapes: as in model/attention.py.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from bertbench.model.attention import attention
from bertbench.model.sequences import Sequences
from tests.rounding import gamma, product_bound, unit


def attention_errors(
    device: torch.device, dtype: torch.dtype, lengths: Sequence[int], heads: int, width: int
) -> list[tuple[float, float]]:
    """Largest error of our attention in `dtype` against padded SDPA in float64, and the largest share of its bound.

    Of the answer, and of the gradients of query, key and value.
    """
    generator = torch.Generator().manual_seed(1)
    qkv = torch.randn(sum(lengths), 3, heads, width, generator=generator).to(device, dtype)
    weights = torch.randn(sum(lengths), heads, width, generator=generator).to(device, dtype)
    sequences = sequences_on(device, lengths)

    def answers(compute: Callable[[Tensor], Tensor], in_type: torch.dtype) -> tuple[Tensor, ...]:
        leaf = qkv.to(in_type, copy=True).requires_grad_()
        context = compute(leaf)
        (gradient,) = torch.autograd.grad((context * weights.to(in_type)).sum(), leaf)
        return context.detach().double(), *gradient.double().unbind(1)

    exact = answers(lambda leaf: padded(leaf, lengths), torch.float64)
    ours = answers(lambda leaf: attention(leaf, sequences, 0.0), dtype)
    errors = [(one - truth).abs() for one, truth in zip(ours, exact, strict=True)]
    bounds = attention_bounds(qkv.double(), weights.double(), lengths, dtype)
    return [(error.max().item(), (error / bound).max().item()) for error, bound in zip(errors, bounds, strict=True)]


def attention_bounds(
    qkv_T3HK: Tensor, gradient_THK: Tensor, lengths: Sequence[int], dtype: torch.dtype
) -> tuple[Tensor, ...]:
    """Return how far context and gradients of query, key and value may be off, by tests/rounding.py: [T, H, K] each.

    A score that is off by d changes its exponential by a factor of exp(d), and its row's sum by at most as much.
    Backward, probabilities stand in a product and in what is subtracted from it, and six results are kept in `dtype`.
    """
    width, parts = qkv_T3HK.shape[-1], []
    for qkv_N3HK, gradient_NHK in zip(qkv_T3HK.split(list(lengths)), gradient_THK.split(list(lengths)), strict=True):
        query, key, value, gradient = (part.transpose(0, 1) for part in (*qkv_N3HK.unbind(1), gradient_NHK))
        length = len(qkv_N3HK)
        scores_HNN = query @ key.mT / width**0.5
        off = product_bound(query, key.mT, dtype).max().item() / width**0.5
        relative = math.expm1(2 * off) + unit(dtype) + gamma(length + 8)
        factor = 2 * relative + 6 * unit(dtype) + gamma(2 * length + width + 8)
        probabilities_HNN = scores_HNN.softmax(-1)
        by_probabilities_HNN = gradient.abs() @ value.abs().mT
        summed_HN1 = (probabilities_HNN * by_probabilities_HNN).sum(-1, keepdim=True)
        by_scores_HNN = probabilities_HNN * (by_probabilities_HNN + summed_HN1) / width**0.5
        magnitudes = (
            probabilities_HNN @ value.abs(),
            by_scores_HNN @ key.abs(),
            by_scores_HNN.mT @ query.abs(),
            probabilities_HNN.mT @ gradient.abs(),
        )
        parts.append(factor * torch.stack(magnitudes).transpose(1, 2))
    return torch.cat(parts, 1).unbind()


def padded(qkv_T3HK: Tensor, lengths: Sequence[int]) -> Tensor:
    """Rows padded to the longest sequence, a mask, scaled_dot_product_attention."""
    rows = torch.nn.utils.rnn.pad_sequence(list(qkv_T3HK.split(list(lengths))), batch_first=True)
    places = torch.arange(max(lengths), device=qkv_T3HK.device)
    mask = places[None, :] < torch.tensor(lengths, device=qkv_T3HK.device)[:, None]
    query, key, value = (rows[:, :, part].transpose(1, 2) for part in range(3))
    out = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask[:, None, None, :])
    return out.transpose(1, 2)[mask]


def sequences_on(device: torch.device, lengths: Sequence[int]) -> Sequences:
    """The layout of sequences of these lengths, its tensor on a device."""
    sequences = Sequences.of(np.array(lengths))
    return replace(sequences, cu_seqlens_S1=sequences.cu_seqlens_S1.to(device))
