"""Attention on CPU: products that read queries, keys and values where they lie and write where results belong.

Shapes: T tokens in the batch, H heads, K width of a head; G sequences of one length N share a product, B = G * H.
"""

import math
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from bertbench.model.dropout import factors, random_bits
from bertbench.model.sequences import EqualLengths, Sequences

# From here on a sequence is a product of its own, in place: copying its heads together costs more than a call saves.
_ALONE_FROM = 96


def cpu_attention(qkv_T3HK: torch.Tensor, sequences: Sequences, dropout: float) -> torch.Tensor:
    """Softmax attention of every sequence over its own tokens: [T, 3, H, K] in, [T, H, K] out; see attention.py.

    Softmax overwrites the scores, the backward pass overwrites what it has used, and of dropout only the random bits
    are kept. So a step copies nothing but short sequences' heads, and works in pieces of memory that stay in cache.
    """
    context_THK: torch.Tensor = _InPlace.apply(qkv_T3HK, sequences.groups, dropout)
    return context_THK


class _InPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, qkv_T3HK: torch.Tensor, groups: tuple[EqualLengths, ...], dropout: float) -> torch.Tensor:
        context_THK = torch.empty_like(qkv_T3HK[:, 0], memory_format=torch.contiguous_format)
        scale = 1 / math.sqrt(qkv_T3HK.shape[-1])
        products, probabilities, bits = _products(groups), [], []
        for tokens, sequences in products:
            query, key, value = (_heads(part, sequences) for part in qkv_T3HK[tokens].unbind(1))
            scores_BNN = _product(query, key.transpose(1, 2), scale)
            kept_BNN = torch.softmax(scores_BNN, -1, out=scores_BNN)
            probabilities.append(scores_BNN)
            if dropout:
                bits.append(random_bits(scores_BNN.shape))
                kept_BNN = factors(bits[-1], dropout, scores_BNN.dtype).mul_(scores_BNN)
            _write(context_THK[tokens], kept_BNN, value, sequences)
        ctx.products, ctx.dropout, ctx.scale = products, dropout, scale
        ctx.save_for_backward(qkv_T3HK, *probabilities, *bits)
        return context_THK

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_THK: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        qkv_T3HK, *saved = ctx.saved_tensors
        probabilities, bits = saved[: len(ctx.products)], saved[len(ctx.products) :]
        gradient_T3HK = torch.empty_like(qkv_T3HK, memory_format=torch.contiguous_format)
        for place, (tokens, sequences) in enumerate(ctx.products):
            query, key, value = (_heads(part, sequences) for part in qkv_T3HK[tokens].unbind(1))
            to_query, to_key, to_value = gradient_T3HK[tokens].unbind(1)
            gradient_BNK = _heads(gradient_THK[tokens], sequences)
            kept_BNN = probabilities_BNN = probabilities[place]
            by_probabilities_BNN = torch.bmm(gradient_BNK, value.transpose(1, 2))
            if ctx.dropout:
                factors_BNN = factors(bits[place], ctx.dropout, probabilities_BNN.dtype)
                by_probabilities_BNN.mul_(factors_BNN)
                kept_BNN = factors_BNN.mul_(probabilities_BNN)
            _write(to_value, kept_BNN.transpose(1, 2), gradient_BNK, sequences)
            by_scores_BNN = torch._softmax_backward_data(
                by_probabilities_BNN, probabilities_BNN, -1, probabilities_BNN.dtype
            )
            _write(to_query, by_scores_BNN, key, sequences, ctx.scale)
            _write(to_key, by_scores_BNN.transpose(1, 2), query, sequences, ctx.scale)
        return gradient_T3HK, None, None


def _products(groups: tuple[EqualLengths, ...]) -> list[tuple[slice, int]]:
    """Tokens and number of the sequences that share a product."""
    products = []
    for group in groups:
        together = 1 if group.length >= _ALONE_FROM else group.sequences
        size = together * group.length
        starts = range(group.start, group.start + group.sequences * group.length, size)
        products += [(slice(start, start + size), together) for start in starts]
    return products


def _heads(part_THK: torch.Tensor, sequences: int) -> torch.Tensor:
    """[B, N, K] of the tokens of some sequences: a view where it is one sequence."""
    return part_THK.unflatten(0, (sequences, -1)).transpose(1, 2).flatten(0, 1)


def _product(left: torch.Tensor, right: torch.Tensor, scale: float) -> torch.Tensor:
    ignored = left.new_empty(()).expand(left.shape[0], left.shape[1], right.shape[2])
    return torch.baddbmm(ignored, left, right, beta=0, alpha=scale)


def _write(
    into_THK: torch.Tensor, left_BNN: torch.Tensor, right_BNK: torch.Tensor, sequences: int, scale: float = 1.0
) -> None:
    """Put scale * left @ right where it belongs."""
    if sequences == 1:
        into_BNK = into_THK.transpose(0, 1)
        torch.baddbmm(into_BNK, left_BNN, right_BNK, beta=0, alpha=scale, out=into_BNK)
        return
    product_BNK = _product(left_BNN, right_BNK, scale)
    heads = into_THK.shape[1]
    into_THK.unflatten(0, (sequences, -1)).copy_(product_BNK.unflatten(0, (sequences, heads)).transpose(1, 2))
