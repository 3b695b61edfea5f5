"""Attention as everyone else computes it, padded, to compare ours with; needs torch and numpy only.

Shapes: as in model/attention.py.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch.nn import functional

from bertbench.model.attention import attention
from bertbench.model.sequences import Sequences

_SUMS_IN_ANOTHER_ORDER = 1e-6  # what two fp32 results of this size may differ by


def attention_errors(
    device: torch.device, dtype: torch.dtype, lengths: Sequence[int], heads: int, width: int
) -> list[tuple[float, float]]:
    """Largest errors of our attention and of padded SDPA, both in `dtype`, against padded SDPA in fp32.

    Of the answer, and of the gradients of query, key and value.
    """
    generator = torch.Generator().manual_seed(1)
    qkv = torch.randn(sum(lengths), 3, heads, width, generator=generator).to(device, dtype)
    weights = torch.randn(sum(lengths), heads, width, generator=generator).to(device, dtype)
    sequences = sequences_on(device, lengths)

    def answers(compute: Callable[[torch.Tensor], torch.Tensor], in_type: torch.dtype) -> tuple[torch.Tensor, ...]:
        leaf = qkv.to(in_type, copy=True).requires_grad_()
        context = compute(leaf)
        (gradient,) = torch.autograd.grad((context * weights.to(in_type)).sum(), leaf)
        return context.detach().float(), *gradient.float().unbind(1)

    exact = answers(lambda leaf: padded(leaf, lengths), torch.float32)
    ours = answers(lambda leaf: attention(leaf, sequences, 0.0), dtype)
    theirs = answers(lambda leaf: padded(leaf, lengths), dtype)
    return [
        ((one - truth).abs().max().item(), max((other - truth).abs().max().item(), _SUMS_IN_ANOTHER_ORDER))
        for one, other, truth in zip(ours, theirs, exact, strict=True)
    ]


def padded(qkv_T3HK: torch.Tensor, lengths: Sequence[int]) -> torch.Tensor:
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
