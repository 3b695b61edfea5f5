"""Compute self-attention inside each sequence of a flat batch, without padding or mask.

`attention` is the one place that chooses the kernel; each kernel is its own function.

Shapes: T tokens in the batch, H heads, K width of a head; G sequences of one length N in a group.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from bertbench.model import loops
from bertbench.model.flash_gradient import flash_gradient
from bertbench.model.sequences import Sequences

FLASH_CAPABILITY = (8, 0)
"""Lowest CUDA compute capability of the flash kernel: an A100's."""

Attention = Callable[[Tensor, Sequences, float], Tensor]
"""Computes softmax attention within every sequence: query, key and value [T, 3, H, K] in, [T, H, K] out.

The float is the rate of dropout on attention probabilities: 0 outside training.
"""


def attention(qkv_T3HK: Tensor, sequences: Sequences, dropout: float) -> Tensor:
    """Compute attention with the fastest kernel that supports these tensors."""
    kernel = kernel_for(qkv_T3HK.device, qkv_T3HK.dtype, qkv_T3HK.shape[-1])
    return kernel(qkv_T3HK, sequences, dropout)


def kernel_for(device: torch.device, dtype: torch.dtype, width: int) -> Attention:
    """Choose torch's flash kernel for half precision on an A100 or newer, compiled loops on a CPU."""
    if device.type == "cpu" and loops.takes(device, dtype):
        return cpu_attention
    if device.type != "cuda" or not flash_takes(dtype, width):
        return plain_attention
    has_flash = torch.cuda.get_device_capability(device) >= FLASH_CAPABILITY
    return flash_attention if has_flash else plain_attention


def flash_takes(dtype: torch.dtype, width: int) -> bool:
    """Return whether the flash kernel supports heads of this type and width."""
    return dtype in (torch.bfloat16, torch.float16) and width % 8 == 0 and width <= 256


def flash_attention(qkv_T3HK: Tensor, sequences: Sequences, dropout: float) -> Tensor:
    """Run all sequences in one kernel that never stores a probability (Dao, arXiv 2307.08691).

    The public `torch.nn.attention.varlen.varlen_attn` lacks dropout, which BERT needs; the operator that it calls
    supports dropout. cuDNN's kernel would be faster on Hopper, but up to torch 2.13 its backward pass mistakes the
    width of a head for the length of the longest sequence and writes outside its memory. Since 2.14, `varlen_attn`
    itself uses cuDNN on Hopper and Blackwell, but never with dropout. docs/log.md says what we know about that.
    """
    context_THK: Tensor = _FlashAttention.apply(qkv_T3HK, sequences, dropout)
    return context_THK


def flash_kernel(query_THK: Tensor, key_THK: Tensor, value_THK: Tensor, sequences: Sequences, dropout: float) -> Tensor:
    """Run the flash kernel on three separate tensors."""
    context_THK, *_ = _flash_forward(query_THK, key_THK, value_THK, sequences, dropout)
    return context_THK


def _flash_forward(
    query_THK: Tensor, key_THK: Tensor, value_THK: Tensor, sequences: Sequences, dropout: float
) -> tuple[Tensor, ...]:
    """Return attention's output, the logsumexp of its scores [H, T], and three tensors that hold dropout's state."""
    ends = sequences.cu_seqlens_S1
    longest = sequences.longest
    # a private operator: arguments are given by name, so that a torch that moves or renames one raises an error
    outputs: tuple[Tensor, ...] = torch.ops.aten._flash_attention_forward(
        query=query_THK, key=key_THK, value=value_THK, cum_seq_q=ends, cum_seq_k=ends, max_q=longest, max_k=longest,
        dropout_p=dropout, is_causal=False, return_debug_mask=False,
    )  # fmt: skip
    return outputs


class _FlashAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, qkv_T3HK: Tensor, sequences: Sequences, dropout: float) -> Tensor:
        query_THK, key_THK, value_THK = qkv_T3HK.unbind(1)
        context_THK, logsumexp_HT, rng_state, unused, _ = _flash_forward(
            query_THK, key_THK, value_THK, sequences, dropout
        )
        ctx.save_for_backward(qkv_T3HK, context_THK, logsumexp_HT, sequences.cu_seqlens_S1, rng_state, unused)
        ctx.longest, ctx.dropout = sequences.longest, dropout
        return context_THK

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_THK: Tensor) -> tuple[Tensor, None, None]:
        qkv_T3HK, context_THK, logsumexp_HT, ends_S1, rng_state, unused = ctx.saved_tensors
        gradient_T3HK = flash_gradient(
            gradient_THK, qkv_T3HK, context_THK, logsumexp_HT, ends_S1, ctx.longest, ctx.dropout, rng_state, unused
        )
        return gradient_T3HK, None, None


def plain_attention(qkv_T3HK: Tensor, sequences: Sequences, dropout: float) -> Tensor:
    """Compute attention by matrix products, each for a run of neighbouring sequences of equal length.

    Such a run is a view of the flat tensor. Sequences of different lengths never share a product, so none is padded.
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
    """Compute each head of each sequence in one core's cache; the backward pass reads the stored probabilities.

    attention.cpp holds the code.
    """
    context_THK: Tensor = _Attention.apply(qkv_T3HK, sequences, dropout)
    return context_THK


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, qkv_T3HK: Tensor, sequences: Sequences, dropout: float) -> Tensor:
        table = sequences.table
        _, _, heads, width = qkv_T3HK.shape
        qkv_T3HK = qkv_T3HK.contiguous()
        probabilities = qkv_T3HK.new_empty(heads * table.probabilities)
        context_THK = torch.empty_like(qkv_T3HK[:, 0], memory_format=torch.contiguous_format)
        mask = loops.draw_mask(dropout)
        ctx.layout = (table.rows_S3, len(table.rows_S3), heads, width, 1 / math.sqrt(width), *mask)
        loops.run("attention", qkv_T3HK, context_THK, probabilities, *ctx.layout)
        ctx.save_for_backward(qkv_T3HK, probabilities)
        return context_THK

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_THK: Tensor) -> tuple[Tensor, None, None]:
        qkv_T3HK, probabilities = ctx.saved_tensors
        gradient_T3HK = torch.empty_like(qkv_T3HK)
        loops.run("attention_gradient", gradient_THK.contiguous(), qkv_T3HK, probabilities, gradient_T3HK, *ctx.layout)
        return gradient_T3HK, None, None
