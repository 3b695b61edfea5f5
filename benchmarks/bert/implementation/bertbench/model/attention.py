"""Self-attention inside each sequence of a flat batch: no padding, no mask, so nothing to leak through.

Shapes: T tokens in the batch, H heads, K width of a head; G sequences of one length N in a group.
"""

import math

import torch
from torch.nn import functional

from bertbench.model.sequences import Sequences


def attention(qkv_T3HK: torch.Tensor, sequences: Sequences, dropout: float) -> torch.Tensor:
    """Softmax attention of every sequence over its own tokens; returns [T, H, K].

    Neighbouring sequences of equal length are one batched product on a view of the flat tensor; other
    lengths never share a product. Explicit matrix products beat SDPA on CPU for these sizes.
    `dropout` acts on the attention probabilities and is 0 outside training.
    """
    outputs = [
        _equal_lengths(
            qkv_T3HK[group.start : group.start + group.sequences * group.length].unflatten(
                0, (group.sequences, group.length)
            ),
            dropout,
        )
        for group in sequences.groups
    ]
    return torch.cat(outputs) if len(outputs) > 1 else outputs[0]


def _equal_lengths(qkv_GN3HK: torch.Tensor, dropout: float) -> torch.Tensor:
    query_GHNK, key_GHNK, value_GHNK = qkv_GN3HK.permute(2, 0, 3, 1, 4)
    scores_GHNN = (query_GHNK / math.sqrt(query_GHNK.shape[-1])) @ key_GHNK.transpose(-2, -1)
    probabilities_GHNN = functional.dropout(scores_GHNN.softmax(dim=-1), dropout)
    context_GHNK = probabilities_GHNN @ value_GHNK
    return context_GHNK.transpose(1, 2).flatten(0, 1)
