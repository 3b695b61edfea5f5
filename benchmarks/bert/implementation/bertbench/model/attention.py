"""Compute self-attention inside each sequence of a flat batch, without padding or mask.

`attention` is the one place that chooses the kernel; each kernel is its own function. A CPU's reads and writes long
sequences in place, and short ones in squares; in half precision it gathers all sequences into squares.

Shapes: T tokens in the batch, H heads, K width of a head; G sequences of one length N in a group; B heads of sequences
of one length N share a product; a row of N scores has room for W. Rows in squares, P, are explained in
model/sequences.py.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from bertbench.model.dropout import keep_mask, keep_share, times_mask
from bertbench.model.sequences import SHORT, Sequences, Squares

Attention = Callable[[Tensor, Sequences, float], Tensor]
"""Softmax attention of every sequence over its own tokens: query, key and value [T, 3, H, K] in, [T, H, K] out.

The number is the dropout on the attention probabilities: 0 outside training.
"""

# Heads of a long sequence share a product up to this many scores. On a Xeon, 2^18, which fit into the cache of a core,
# take 1.1 times as long in float32 and 1.2 times in bfloat16: eight times as many calls, each on cold data.
_SCORES = 2**21
_LINE = 16  # 4-byte numbers in a cache line


def attention(qkv_T3HK: Tensor, sequences: Sequences, dropout: float) -> Tensor:
    """Run attention by the fastest kernel that takes these tensors."""
    kernel = kernel_for(qkv_T3HK.device, qkv_T3HK.dtype, qkv_T3HK.shape[-1])
    return kernel(qkv_T3HK, sequences, dropout)


def kernel_for(device: torch.device, dtype: torch.dtype, width: int) -> Attention:
    """Choose torch's flash kernel in half precision on an A100 or newer, in-place products on a CPU."""
    if device.type == "cpu":
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


_Block = tuple[list[Tensor], Tensor | None, int]
"""Tensors that share a product, views, so that results are written in place; mask and keys as in Square."""


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, qkv_T3HK: Tensor, sequences: Sequences, dropout: float) -> Tensor:
        half, heads = qkv_T3HK.itemsize == 2, qkv_T3HK.shape[2]
        squares = sequences.squares if half else sequences.short
        context_THK = torch.empty_like(qkv_T3HK[:, 0], memory_format=torch.contiguous_format)
        rows_3PK = squares.gather(qkv_T3HK)
        context_PK = torch.empty_like(rows_3PK[0])
        scale, enlarged = 1 / math.sqrt(qkv_T3HK.shape[-1]), 1 / keep_share(dropout)
        probabilities, kept = [], []
        blocks = _blocks(sequences, squares, heads, [*qkv_T3HK.unbind(1), context_THK], [*rows_3PK, context_PK])
        for (query, key, value, context), mask_n11W, keys in blocks:
            scores_BNW, length = _rows(query), query.shape[1]
            if mask_n11W is not None:
                scores_BNW.unflatten(0, (len(mask_n11W), -1)).copy_(mask_n11W)
            _product(query, key.transpose(1, 2), scale, scores_BNW[..., :length], mask_n11W)
            if mask_n11W is None:
                scores_BNW[..., keys:] = -math.inf
            read_BNW = torch.softmax(scores_BNW, -1, out=scores_BNW)
            probabilities.append(read_BNW)
            if dropout:
                mask_BNW = keep_mask(scores_BNW.shape, dropout, scores_BNW.dtype)
                read_BNW = times_mask(scores_BNW, mask_BNW, torch.empty_like(scores_BNW) if half else mask_BNW)
                kept.append(mask_BNW if half else read_BNW)
            _product(read_BNW[..., :length], value, enlarged, context)
        squares.scatter(context_PK[None], context_THK[:, None])
        # After dropout the backward pass multiplies by masks in half precision, where that is fast (model/dropout.py).
        # In float32 masks would be one more tensor in the cache: it reads probabilities after dropout, and the context.
        ctx.sequences, ctx.squares, ctx.dropout, ctx.scale = sequences, squares, dropout, scale
        ctx.shape, ctx.blocks = qkv_T3HK.shape, len(probabilities)
        read_again = qkv_T3HK if not squares.holds(sequences.longest) else None
        summed = context_THK if dropout and not half else None
        ctx.save_for_backward(read_again, summed, rows_3PK, *probabilities, *kept)
        return context_THK

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_THK: Tensor) -> tuple[Tensor, None, None]:
        qkv_T3HK, context_THK, rows_3PK, *saved = ctx.saved_tensors
        squares, heads, enlarged = ctx.squares, ctx.shape[2], 1 / keep_share(ctx.dropout)
        gradient_T3HK, gradient_3PK = gradient_THK.new_empty(ctx.shape), torch.empty_like(rows_3PK)
        given = [gradient_THK]
        if context_THK is not None:
            given.append((gradient_THK * context_THK).sum(-1, keepdim=True))
        given_rows = [squares.gather(tensor[:, None])[0] for tensor in given]
        for tensor_PK in given_rows:
            squares.clear_filler(tensor_PK, heads)
        in_place_T3HK = gradient_T3HK if qkv_T3HK is None else qkv_T3HK  # with all in squares, neither is read
        flat = [*in_place_T3HK.unbind(1), *gradient_T3HK.unbind(1), *given]
        blocks = _blocks(ctx.sequences, squares, heads, flat, [*rows_3PK, *gradient_3PK, *given_rows])
        for place, ((query, key, value, to_query, to_key, to_value, gradient, *sums), *_) in enumerate(blocks):
            probabilities_BNW, length = saved[place], query.shape[1]
            kept_BNW = saved[ctx.blocks + place] if ctx.dropout else None
            by_scores_BNW = torch.empty_like(probabilities_BNW)
            by_scores_BNW[..., length:] = 0  # softmax's gradient sums whole rows
            _product(gradient, value.transpose(1, 2), enlarged, by_scores_BNW[..., :length])
            read_BNW = _through_softmax(by_scores_BNW, probabilities_BNW, kept_BNW, *sums)
            _product(read_BNW[..., :length].transpose(1, 2), gradient, enlarged, to_value)
            by_scores_BNN = by_scores_BNW[..., :length]
            _product(by_scores_BNN, key, ctx.scale, to_query)
            _product(by_scores_BNN.transpose(1, 2), query, ctx.scale, to_key)
        squares.scatter(gradient_3PK, gradient_T3HK)
        return gradient_T3HK, None, None


def _blocks(
    sequences: Sequences, squares: Squares, heads: int, flat: list[Tensor], rows: list[Tensor]
) -> Iterator[_Block]:
    """Yield what shares a product: views of long sequences in `flat`, [T, H, K] each, and squares in `rows`, [P, K]."""
    for group in sequences.groups:
        if not squares.holds(group.length):
            some = _heads_together(group.length, heads)
            for start in range(group.start, group.start + group.sequences * group.length, group.length):
                tokens = slice(start, start + group.length)
                for head in range(0, heads, some):
                    views = [tensor[tokens, head : head + some].transpose(0, 1) for tensor in flat]
                    yield views, None, group.length
    by_square = zip(*(squares.split(tensor_PK, heads) for tensor_PK in rows), strict=True)
    for square, tensors in zip(squares.squares, by_square, strict=True):
        count, width = tensors[0].shape[:2]
        some = count if width <= SHORT else _heads_together(width, heads)
        for parts in zip(*(tensor.split(some) for tensor in tensors), strict=True):
            yield list(parts), square.mask_n11W, square.keys


def _heads_together(length: int, heads: int) -> int:
    """Return how many heads of a long sequence share a product: a divisor, so that products have few sizes."""
    return max(some for some in range(1, heads + 1) if heads % some == 0 and (some == 1 or some * length**2 <= _SCORES))


def _rows(like_BNK: Tensor) -> Tensor:
    """Return [B, N, W] for scores; long rows take an odd number of cache lines, or MKL would read columns slowly.

    Not in half precision: oneDNN, which multiplies there, would copy such rows first.
    """
    length = like_BNK.shape[1]
    width = length
    if length > SHORT and like_BNK.itemsize > 2:
        width += (_LINE - length) % (2 * _LINE)
    return like_BNK.new_empty((*like_BNK.shape[:2], width))


def _product(left: Tensor, right: Tensor, scale: float, into: Tensor, add: Tensor | None = None) -> None:
    """Overwrite a tensor with scale * left @ right, or add to it if `add` is given."""
    torch.baddbmm(into, left, right, beta=0 if add is None else 1, alpha=scale, out=into)


def _through_softmax(
    by_kept_BNW: Tensor,
    probabilities_BNW: Tensor,
    kept_BNW: Tensor | None,
    sums_BN1: Tensor | None = None,
) -> Tensor:
    """Overwrite the gradient of the probabilities after dropout by that of the scores; return those probabilities.

    `kept_BNW` is what the forward pass kept of dropout: None without dropout, probabilities after it with `sums_BN1`,
    else its masks. Those sums, over K of context times its gradient, equal the sums over W of probabilities times their
    gradient (Dao et al., arXiv 2205.14135).
    """
    read_BNW = probabilities_BNW
    if kept_BNW is not None:
        if sums_BN1 is not None:
            by_kept_BNW.mul_(kept_BNW).addcmul_(probabilities_BNW, sums_BN1, value=-1)
            return kept_BNW
        times_mask(by_kept_BNW, kept_BNW, by_kept_BNW)
        read_BNW = times_mask(probabilities_BNW, kept_BNW, torch.empty_like(probabilities_BNW))
    torch._softmax_backward_data(by_kept_BNW, probabilities_BNW, -1, by_kept_BNW.dtype, grad_input=by_kept_BNW)
    return read_BNW
