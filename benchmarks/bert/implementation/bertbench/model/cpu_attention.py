"""Compute attention on CPU by products that read and write the flat tensors in place.

Short sequences are gathered into squares first (model/squares.py); long ones are read in place.

Shapes: T tokens in the batch, H heads, K width of a head; B heads of sequences of one length N share a product; a row
of N scores has room for W. Rows in squares, P, are explained in model/squares.py.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch.autograd.function import once_differentiable

from bertbench.model.dropout import keep_mask, keep_share, random_bits, times_mask
from bertbench.model.sequences import EqualLengths, Sequences
from bertbench.model.squares import LONGEST

# Heads of a long sequence share a product up to this many scores: 1 MB stays in a core's cache between passes.
_SCORES = 2**18
_LINE = 16  # 4-byte numbers in a cache line


def cpu_attention(qkv_T3HK: torch.Tensor, sequences: Sequences, dropout: float) -> torch.Tensor:
    """Compute softmax attention of every sequence over its own tokens: [T, 3, H, K] in, [T, H, K] out.

    Softmax overwrites the scores, the backward pass overwrites tensors after their last use, and dropout keeps only its
    random bits. So a step copies only short sequences' heads, and works in blocks of memory that stay in cache.
    """
    context_THK: torch.Tensor = _Attention.apply(qkv_T3HK, sequences, dropout)
    return context_THK


class _Piece(NamedTuple):
    """Tensors that share a product; all are views, so that results are written in place."""

    query_BNK: torch.Tensor
    key_BNK: torch.Tensor
    value_BNK: torch.Tensor
    result_BNK: torch.Tensor
    """The context in the forward pass, the context's gradient in the backward pass."""
    mask_n11W: torch.Tensor | None


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, qkv_T3HK: torch.Tensor, sequences: Sequences, dropout: float) -> torch.Tensor:
        context_THK = torch.empty_like(qkv_T3HK[:, 0], memory_format=torch.contiguous_format)
        scale = 1 / math.sqrt(qkv_T3HK.shape[-1])
        rows_3PK = sequences.short.gather(qkv_T3HK) if sequences.short.squares else None
        context_PK = None if rows_3PK is None else torch.empty_like(rows_3PK[0])
        probabilities, bits = [], []
        for piece in _pieces(sequences, qkv_T3HK, rows_3PK, context_THK, context_PK):
            scores_BNW, length = _rows(piece.query_BNK), piece.query_BNK.shape[1]
            _fill(scores_BNW, length, piece.mask_n11W)
            _product(piece.query_BNK, piece.key_BNK.transpose(1, 2), scale, scores_BNW[..., :length], piece.mask_n11W)
            read_BNW = torch.softmax(scores_BNW, -1, out=scores_BNW)
            probabilities.append(scores_BNW)
            if dropout:
                bits.append(random_bits(scores_BNW.shape))
                mask_BNW = keep_mask(bits[-1], dropout, scores_BNW.dtype)
                read_BNW = times_mask(scores_BNW, mask_BNW, mask_BNW)
            _product(read_BNW[..., :length], piece.value_BNK, 1 / keep_share(dropout), piece.result_BNK)
        if context_PK is not None:
            sequences.short.scatter(context_PK[None], context_THK[:, None])
        ctx.sequences, ctx.dropout, ctx.scale, ctx.shape = sequences, dropout, scale, qkv_T3HK.shape
        read_again = qkv_T3HK if sequences.longest > LONGEST else None  # short sequences are in their squares
        ctx.save_for_backward(read_again, rows_3PK, *probabilities, *bits)
        return context_THK

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_THK: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        qkv_T3HK, rows_3PK, *saved = ctx.saved_tensors
        short, heads, enlarged = ctx.sequences.short, ctx.shape[2], 1 / keep_share(ctx.dropout)
        gradient_T3HK = gradient_THK.new_empty(ctx.shape)
        gradient_PK = gradient_3PK = None
        if rows_3PK is not None:
            gradient_PK, gradient_3PK = short.gather(gradient_THK[:, None])[0], torch.empty_like(rows_3PK)
            short.clear_filler(gradient_PK, heads)
        flat_T3HK = gradient_T3HK if qkv_T3HK is None else qkv_T3HK
        pieces = _pieces(ctx.sequences, flat_T3HK, rows_3PK, gradient_THK, gradient_PK)
        into = _pieces(ctx.sequences, gradient_T3HK, gradient_3PK, gradient_THK, gradient_PK)
        for place, (piece, to) in enumerate(zip(pieces, into, strict=True)):
            read_BNW = probabilities_BNW = saved[place]
            by_scores_BNW, length = torch.empty_like(probabilities_BNW), piece.query_BNK.shape[1]
            by_scores_BNW[..., length:] = 0
            _product(piece.result_BNK, piece.value_BNK.transpose(1, 2), enlarged, by_scores_BNW[..., :length])
            if ctx.dropout:
                mask_BNW = keep_mask(saved[len(pieces) + place], ctx.dropout, probabilities_BNW.dtype)
                times_mask(by_scores_BNW, mask_BNW, by_scores_BNW)
                read_BNW = times_mask(probabilities_BNW, mask_BNW, mask_BNW)
            _product(read_BNW[..., :length].transpose(1, 2), piece.result_BNK, enlarged, to.value_BNK)
            torch._softmax_backward_data(
                by_scores_BNW, probabilities_BNW, -1, by_scores_BNW.dtype, grad_input=by_scores_BNW
            )
            by_scores_BNN = by_scores_BNW[..., :length]
            _product(by_scores_BNN, piece.key_BNK, ctx.scale, to.query_BNK)
            _product(by_scores_BNN.transpose(1, 2), piece.query_BNK, ctx.scale, to.key_BNK)
        if gradient_3PK is not None:
            short.scatter(gradient_3PK, gradient_T3HK)
        return gradient_T3HK, None, None


def _pieces(
    sequences: Sequences,
    qkv_T3HK: torch.Tensor,
    rows_3PK: torch.Tensor | None,
    result_THK: torch.Tensor,
    result_PK: torch.Tensor | None,
) -> list[_Piece]:
    heads = qkv_T3HK.shape[2]
    pieces = []
    for tokens, some in _long(sequences.groups, heads):
        query, key, value = (part.transpose(0, 1) for part in qkv_T3HK[tokens, :, some].unbind(1))
        pieces.append(_Piece(query, key, value, result_THK[tokens, some].transpose(0, 1), None))
    if rows_3PK is not None and result_PK is not None:
        by_part = [sequences.short.split(rows_PK, heads) for rows_PK in (*rows_3PK.unbind(), result_PK)]
        for square, query, key, value, result in zip(sequences.short.squares, *by_part, strict=True):
            pieces.append(_Piece(query, key, value, result, square.mask_n11W))
    return pieces


def _long(groups: Sequence[EqualLengths], heads: int) -> list[tuple[slice, slice]]:
    """Return the tokens of each long sequence and the heads of it that share a product."""
    pieces = []
    for group in groups:
        if group.length > LONGEST:
            some = max(1, min(heads, _SCORES // group.length**2))
            for start in range(group.start, group.start + group.sequences * group.length, group.length):
                tokens = slice(start, start + group.length)
                pieces += [(tokens, slice(head, head + some)) for head in range(0, heads, some)]
    return pieces


def _rows(like_BNK: torch.Tensor) -> torch.Tensor:
    """Return [B, N, W] for scores; long rows take an odd number of cache lines, or MKL would read columns slowly.

    Not in half precision: oneDNN, which multiplies there, would copy such rows first.
    """
    length = like_BNK.shape[1]
    width = length
    if length > LONGEST and like_BNK.itemsize > 2:
        width += (_LINE - length) % (2 * _LINE)
    return like_BNK.new_empty((*like_BNK.shape[:2], width))


def _fill(scores_BNW: torch.Tensor, length: int, mask_n11W: torch.Tensor | None) -> None:
    """Set scores to -inf at places without a key."""
    if mask_n11W is None:
        scores_BNW[..., length:] = -math.inf
    else:
        scores_BNW.unflatten(0, (len(mask_n11W), -1)).copy_(mask_n11W)


def _product(
    left: torch.Tensor, right: torch.Tensor, scale: float, into: torch.Tensor, add: torch.Tensor | None = None
) -> None:
    """Overwrite a tensor with scale * left @ right, or add to it if `add` is given."""
    torch.baddbmm(into, left, right, beta=0 if add is None else 1, alpha=scale, out=into)
