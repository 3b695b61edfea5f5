"""Compute self-attention inside each sequence of a flat batch, without padding or mask.

`attention` is the one place that chooses the kernel; each kernel is its own function. A CPU's computes short sequences
in its cache, and gathers long ones into squares.

Shapes: T tokens in the batch, H heads, K width of a head; G sequences of one length N in a group; a row of N scores has
room for W. Rows in squares, P, are explained in model/sequences.py.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from bertbench.model import loops
from bertbench.model.loops import Mask, draw_mask
from bertbench.model.sequences import Sequences

Attention = Callable[[Tensor, Sequences, float], Tensor]
"""Softmax attention of every sequence over its own tokens: query, key and value [T, 3, H, K] in, [T, H, K] out.

The number is the dropout on the attention probabilities: 0 outside training.
"""

_LINE = 16  # 4-byte numbers in a cache line


def attention(qkv_T3HK: Tensor, sequences: Sequences, dropout: float) -> Tensor:
    """Run attention by the fastest kernel that takes these tensors."""
    kernel = kernel_for(qkv_T3HK.device, qkv_T3HK.dtype, qkv_T3HK.shape[-1])
    return kernel(qkv_T3HK, sequences, dropout)


def kernel_for(device: torch.device, dtype: torch.dtype, width: int) -> Attention:
    """Choose torch's flash kernel in half precision on an A100 or newer, products of squares on a CPU."""
    if device.type == "cpu" and loops.takes(device, dtype):
        return cpu_attention
    if device.type == "cuda" and flash_takes(dtype, width) and torch.cuda.get_device_capability(device) >= (8, 0):
        return flash_attention
    return plain_attention


def flash_takes(dtype: torch.dtype, width: int) -> bool:
    """Return whether the flash kernel takes heads of this type and width."""
    return dtype in (torch.bfloat16, torch.float16) and width % 8 == 0 and width <= 256


def flash_attention(qkv_T3HK: Tensor, sequences: Sequences, dropout: float) -> Tensor:
    """Run all sequences in one kernel that never stores a probability (Dao, arXiv 2307.08691).

    The public `torch.nn.attention.varlen.varlen_attn` lacks dropout, which BERT needs; the operator behind it has it.
    Its first ten arguments are the same in torch 2.11 to 2.13. cuDNN's kernel would be faster on Hopper, but torch
    takes the width of a head for the longest sequence in its backward pass, and so writes past its memory.
    """
    # The backward pass stacks the three gradients, 302 MB at 24,576 tokens of BERT-Large: the operator takes no outputs
    # to write into. A product for each of the three would move as much: it reads the layer's input twice more (100 MB)
    # and its gradient's sum twice (200 MB).
    query_THK, key_THK, value_THK = qkv_T3HK.unbind(1)
    return flash_kernel(query_THK, key_THK, value_THK, sequences, dropout)


def flash_kernel(query_THK: Tensor, key_THK: Tensor, value_THK: Tensor, sequences: Sequences, dropout: float) -> Tensor:
    """Run the same kernel on three separate tensors."""
    ends, longest = sequences.cu_seqlens_S1, sequences.longest
    context_THK: Tensor
    context_THK, *_ = torch.ops.aten._flash_attention_forward(
        query_THK, key_THK, value_THK, ends, ends, longest, longest, dropout, False, False
    )
    return context_THK


def plain_attention(qkv_T3HK: Tensor, sequences: Sequences, dropout: float) -> Tensor:
    """Run matrix products, batched over neighbouring sequences of equal length as a view of the flat tensor.

    Sequences of different lengths never share a product, so none is padded.
    """
    outputs = [_equal_lengths(qkv_GN3HK, dropout) for qkv_GN3HK in sequences.grouped(qkv_T3HK)]
    return torch.cat(outputs) if len(outputs) > 1 else outputs[0]


def _equal_lengths(qkv_GN3HK: Tensor, dropout: float) -> Tensor:
    query_GHNK, key_GHNK, value_GHNK = qkv_GN3HK.permute(2, 0, 3, 1, 4)
    scores_GHNN = (query_GHNK / math.sqrt(query_GHNK.shape[-1])) @ key_GHNK.transpose(-2, -1)
    probabilities_GHNN = functional.dropout(scores_GHNN.softmax(dim=-1), dropout)
    context_GHNK = probabilities_GHNN @ value_GHNK
    return context_GHNK.transpose(1, 2).flatten(0, 1)


def cpu_attention(qkv_T3HK: Tensor, sequences: Sequences, dropout: float) -> Tensor:
    """Compute softmax attention of every sequence over its own tokens: [T, 3, H, K] in, [T, H, K] out.

    Softmax overwrites the scores, and the backward pass overwrites tensors after their last use.
    """
    context_THK: Tensor = _Attention.apply(qkv_T3HK, sequences, dropout)
    return context_THK


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, qkv_T3HK: Tensor, sequences: Sequences, dropout: float) -> Tensor:
        (short, squares), mask, (*_, heads, width) = sequences.by_length, draw_mask(dropout), qkv_T3HK.shape
        qkv_T3HK, scale = qkv_T3HK.contiguous(), 1 / math.sqrt(width)
        context_THK = torch.empty_like(qkv_T3HK[:, 0], memory_format=torch.contiguous_format)
        probabilities = qkv_T3HK.new_empty(heads * short.numbers, dtype=torch.float32)
        ctx.short = short.table_S3, len(short.table_S3), heads, width, scale, *mask
        loops.run("short_attention", qkv_T3HK, context_THK, probabilities, *ctx.short)
        rows_3PK, kept = squares.gather(qkv_T3HK), []
        context_PK, number = torch.empty_like(rows_3PK[0]), len(probabilities)
        for length, (query, key, value, context) in squares.split([*rows_3PK, context_PK], heads):
            scores_HNW = _rows(query)
            _product(query, key.transpose(1, 2), scale, scores_HNW[..., : query.shape[1]])
            read_HNW = torch.empty_like(scores_HNW) if mask.drops else scores_HNW
            number = _loop("softmax", (scores_HNW, read_HNW), (length,), mask, number)
            kept.append(scores_HNW)
            _product(read_HNW[..., : query.shape[1]], value, mask.enlarged, context)
        squares.scatter(context_PK[None], context_THK[:, None])
        ctx.squares, ctx.mask, ctx.shape = squares, mask, qkv_T3HK.shape
        # long sequences have their rows; short ones read this
        ctx.save_for_backward(qkv_T3HK if short.numbers else probabilities, probabilities, rows_3PK, *kept)
        return context_THK

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_THK: Tensor) -> tuple[Tensor, None, None]:
        qkv_T3HK, short, rows_3PK, *saved = ctx.saved_tensors
        squares, mask, number, (_, _, heads, _, scale, *_) = ctx.squares, ctx.mask, len(short), ctx.short
        gradient_THK, gradient_T3HK = gradient_THK.contiguous(), gradient_THK.new_empty(ctx.shape)
        loops.run("short_attention_gradient", gradient_THK, qkv_T3HK, short, gradient_T3HK, *ctx.short)
        gradient_3PK, given_PK = torch.empty_like(rows_3PK), squares.gather(gradient_THK[:, None])[0]
        blocks = squares.split([*rows_3PK, *gradient_3PK, given_PK], heads)
        for probabilities_HNW, (_, tensors) in zip(saved, blocks, strict=True):
            query, key, value, to_query, to_key, to_value, gradient = tensors
            by_scores_HNW, width = torch.empty_like(probabilities_HNW), query.shape[1]
            by_scores_HNW[..., width:] = 0  # softmax's gradient sums whole rows
            _product(gradient, value.transpose(1, 2), mask.enlarged, by_scores_HNW[..., :width])
            read_HNW = torch.empty_like(probabilities_HNW) if mask.drops else probabilities_HNW
            number = _loop("softmax_gradient", (by_scores_HNW, probabilities_HNW, read_HNW), (), mask, number)
            _product(read_HNW[..., :width].transpose(1, 2), gradient, mask.enlarged, to_value)
            by_scores_HNN = by_scores_HNW[..., :width]
            _product(by_scores_HNN, key, scale, to_query)
            _product(by_scores_HNN.transpose(1, 2), query, scale, to_key)
        squares.scatter(gradient_3PK, gradient_T3HK)
        return gradient_T3HK, None, None


def _loop(name: str, tensors: tuple[Tensor, ...], keys: tuple[int, ...], mask: Mask, number: int) -> int:
    """Run a loop over rows of scores; return the number after the mask's last one."""
    heads, height, width = tensors[0].shape
    loops.run(name, *tensors, heads * height, width, *keys, *mask, number)
    return number + heads * height * (width // 2 + 16)  # at least the hashes of a row


def _rows(like_HNK: Tensor) -> Tensor:
    """Return [H, N, W] for scores; rows take an odd number of cache lines, or MKL would read columns slowly.

    Not in half precision: oneDNN, which multiplies there, would copy such rows first.
    """
    width = like_HNK.shape[1]
    if like_HNK.itemsize > 2:
        width += (_LINE - width) % (2 * _LINE)
    return like_HNK.new_empty((*like_HNK.shape[:2], width))


def _product(left: Tensor, right: Tensor, scale: float, into: Tensor) -> None:
    """Overwrite a tensor with scale * left @ right."""
    torch.baddbmm(into, left, right, beta=0, alpha=scale, out=into)
