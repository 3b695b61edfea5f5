"""BERT's encoder: post-LayerNorm transformer layers over a flat batch of tokens.

Shapes: T tokens in the batch, D hidden size, F feed-forward size.
"""

import torch
from torch import nn
from torch.nn import functional

from bertbench.model.attention import attention
from bertbench.model.sequences import Sequences
from bertbench.model.shape import BertShape
from bertbench.ranges import ATTENTION, named


class EncoderLayer(nn.Module):
    """Attention and feed-forward, each followed by dropout, the residual and LayerNorm (Devlin et al., 2018)."""

    def __init__(self, shape: BertShape) -> None:
        super().__init__()
        self.heads = shape.attention_heads
        self.attention_dropout = shape.attention_dropout
        self.hidden_dropout = shape.hidden_dropout
        self.qkv = nn.Linear(shape.hidden_size, 3 * shape.hidden_size)
        self.attention_output = nn.Linear(shape.hidden_size, shape.hidden_size)
        self.attention_norm = nn.LayerNorm(shape.hidden_size, eps=shape.layer_norm_eps)
        self.feed_forward_in = nn.Linear(shape.hidden_size, shape.feed_forward_size)
        self.feed_forward_out = nn.Linear(shape.feed_forward_size, shape.hidden_size)
        self.feed_forward_norm = nn.LayerNorm(shape.hidden_size, eps=shape.layer_norm_eps)

    def forward(self, hidden_TD: torch.Tensor, sequences: Sequences) -> torch.Tensor:
        """One layer: [T, D] in, [T, D] out."""
        qkv_T3HK = self.qkv(hidden_TD).unflatten(-1, (3, self.heads, -1))
        with named(ATTENTION):
            context_THK = attention(qkv_T3HK, sequences, self.attention_dropout if self.training else 0.0)
        attended_TD = self._dropout(self.attention_output(context_THK.flatten(1)))
        hidden_TD = self.attention_norm(hidden_TD + attended_TD)
        expanded_TF = functional.gelu(self.feed_forward_in(hidden_TD), approximate="tanh")
        return self.feed_forward_norm(hidden_TD + self._dropout(self.feed_forward_out(expanded_TF)))

    def _dropout(self, hidden_TD: torch.Tensor) -> torch.Tensor:
        return functional.dropout(hidden_TD, self.hidden_dropout, self.training)
