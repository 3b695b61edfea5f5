"""Attention on CPU: products that read queries, keys and values where they lie and write where results belong.

Shapes: T tokens in the batch, H heads, K width of a head; B heads of sequences of one length N share a product; a row
of N scores has room for W.
"""

import math
from typing import Any, NamedTuple

import torch
from torch.autograd.function import once_differentiable

from bertbench.model.dropout import keep_mask, keep_share, random_bits
from bertbench.model.sequences import EqualLengths, Sequences

# From here on a sequence is a product of its own, in place: copying its heads together costs more than a call saves.
_ALONE_FROM = 96
# Of a long sequence so many heads share a product that their scores, 1 MB, stay in a core's cache between passes.
_SCORES = 2**18
_LINE = 16  # numbers of 4 bytes in a line of the cache


def cpu_attention(qkv_T3HK: torch.Tensor, sequences: Sequences, dropout: float) -> torch.Tensor:
    """Softmax attention of every sequence over its own tokens: [T, 3, H, K] in, [T, H, K] out; see attention.py.

    Softmax overwrites the scores, the backward pass overwrites what it has used, and of dropout only the random bits
    are kept. So a step copies nothing but short sequences' heads, and works in pieces of memory that stay in cache.
    """
    context_THK: torch.Tensor = _InPlace.apply(qkv_T3HK, sequences.groups, dropout)
    return context_THK


class _Share(NamedTuple):
    """What one product takes: so many sequences of one length, whose tokens are neighbours, and some of their heads."""

    tokens: slice
    heads: slice
    sequences: int


class _InPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, qkv_T3HK: torch.Tensor, groups: tuple[EqualLengths, ...], dropout: float) -> torch.Tensor:
        context_THK = torch.empty_like(qkv_T3HK[:, 0], memory_format=torch.contiguous_format)
        scale = 1 / math.sqrt(qkv_T3HK.shape[-1])
        shares, probabilities, bits = _shares(groups, qkv_T3HK.shape[2]), [], []
        for tokens, heads, sequences in shares:
            query, key, value = (_heads(part, sequences) for part in qkv_T3HK[tokens, :, heads].unbind(1))
            length = query.shape[1]
            scores_BNW = _rows(query, -math.inf)
            _product(query, key.transpose(1, 2), scale, scores_BNW[..., :length])
            read_BNW = torch.softmax(scores_BNW, -1, out=scores_BNW)
            probabilities.append(scores_BNW)
            if dropout:
                bits.append(random_bits(scores_BNW.shape))
                read_BNW = keep_mask(bits[-1], dropout, scores_BNW.dtype).mul_(scores_BNW)
            _write(context_THK[tokens, heads], read_BNW[..., :length], value, sequences, 1 / keep_share(dropout))
        ctx.shares, ctx.dropout, ctx.scale = shares, dropout, scale
        ctx.save_for_backward(qkv_T3HK, *probabilities, *bits)
        return context_THK

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_THK: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        qkv_T3HK, *saved = ctx.saved_tensors
        probabilities, bits = saved[: len(ctx.shares)], saved[len(ctx.shares) :]
        gradient_T3HK = torch.empty_like(qkv_T3HK, memory_format=torch.contiguous_format)
        enlarged = 1 / keep_share(ctx.dropout)
        for place, (tokens, heads, sequences) in enumerate(ctx.shares):
            query, key, value = (_heads(part, sequences) for part in qkv_T3HK[tokens, :, heads].unbind(1))
            to_query, to_key, to_value = gradient_T3HK[tokens, :, heads].unbind(1)
            gradient_BNK = _heads(gradient_THK[tokens, heads], sequences)
            length = query.shape[1]
            read_BNW = probabilities_BNW = probabilities[place]
            by_scores_BNW = _rows(query, 0.0)
            _product(gradient_BNK, value.transpose(1, 2), enlarged, by_scores_BNW[..., :length])
            if ctx.dropout:
                kept_BNW = keep_mask(bits[place], ctx.dropout, probabilities_BNW.dtype)
                by_scores_BNW.mul_(kept_BNW)
                read_BNW = kept_BNW.mul_(probabilities_BNW)
            _write(to_value, read_BNW[..., :length].transpose(1, 2), gradient_BNK, sequences, enlarged)
            torch._softmax_backward_data(
                by_scores_BNW, probabilities_BNW, -1, by_scores_BNW.dtype, grad_input=by_scores_BNW
            )
            by_scores_BNN = by_scores_BNW[..., :length]
            _write(to_query, by_scores_BNN, key, sequences, ctx.scale)
            _write(to_key, by_scores_BNN.transpose(1, 2), query, sequences, ctx.scale)
        return gradient_T3HK, None, None


def _shares(groups: tuple[EqualLengths, ...], heads: int) -> list[_Share]:
    shares = []
    for group in groups:
        alone = group.length >= _ALONE_FROM
        together = 1 if alone else group.sequences
        some = max(1, min(heads, _SCORES // group.length**2)) if alone else heads
        size = together * group.length
        for start in range(group.start, group.start + group.sequences * group.length, size):
            shares += [
                _Share(slice(start, start + size), slice(head, head + some), together) for head in range(0, heads, some)
            ]
    return shares


def _rows(like_BNK: torch.Tensor, filler: float) -> torch.Tensor:
    """[B, N, W] for scores; long rows are an odd number of cache lines, or products that read columns would be slow."""
    length = like_BNK.shape[1]
    width = length if length < _ALONE_FROM else length + (_LINE - length) % (2 * _LINE)
    rows_BNW = like_BNK.new_empty((*like_BNK.shape[:2], width))
    rows_BNW[..., length:] = filler
    return rows_BNW


def _heads(part_THK: torch.Tensor, sequences: int) -> torch.Tensor:
    """[B, N, K] of the tokens of some sequences: a view where it is one sequence."""
    return part_THK.unflatten(0, (sequences, -1)).transpose(1, 2).flatten(0, 1)


def _product(left: torch.Tensor, right: torch.Tensor, scale: float, into: torch.Tensor) -> None:
    """Put scale * left @ right into a tensor, whatever was there."""
    torch.baddbmm(into, left, right, beta=0, alpha=scale, out=into)


def _write(
    into_THK: torch.Tensor, left_BNN: torch.Tensor, right_BNK: torch.Tensor, sequences: int, scale: float
) -> None:
    """Put scale * left @ right where it belongs."""
    if sequences == 1:
        _product(left_BNN, right_BNK, scale, into_THK.transpose(0, 1))
        return
    product_BNK = torch.empty_like(right_BNK)
    _product(left_BNN, right_BNK, scale, product_BNK)
    heads = into_THK.shape[1]
    into_THK.unflatten(0, (sequences, -1)).copy_(product_BNK.unflatten(0, (sequences, heads)).transpose(1, 2))
