"""Define BERT's encoder: post-LayerNorm transformer layers over a flat batch of tokens.

Shapes: T tokens in the batch, R tokens that a layer returns, D hidden size, F feed-forward size.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from bertbench.common.phase_clock import in_phase
from bertbench.common.phases import ATTENTION
from bertbench.model.attention import Attention, attention
from bertbench.model.linear import Linear
from bertbench.model.loops import AddNorm, gelu
from bertbench.model.sequences import Sequences
from bertbench.model.shape import BertShape


class UnscaledStates(NamedTuple):
    """Hidden states between two layers that are compiled as one piece; EncoderLayer itself has none.

    The first layer's LayerNorm has normalised them, and keeps them like this for its backward pass. The second layer
    reads these instead of another tensor, and applies LayerNorm's weight and bias itself:
    hidden_TD = normalised_TD * weight_D + bias_D.

    In the backward pass, the gradient of `normalised_TD` is that of hidden_TD: LayerNorm's own backward pass multiplies
    it by the weight.
    """

    normalised_TD: Tensor
    weight_D: Tensor
    bias_D: Tensor


class EncoderLayer(nn.Module):
    """Attention and feed-forward, each followed by dropout, the residual and LayerNorm (Devlin et al., 2018).

    The code before and after attention is in separate methods that depend only on the number of tokens.
    model/compiled_layer.py holds the functions that torch compiles in their place, once for all layers and batches.
    """

    def __init__(self, shape: BertShape, attention: Attention = attention) -> None:
        super().__init__()
        self.heads = shape.attention_heads
        self.attention_dropout = shape.attention_dropout
        self.hidden_dropout = shape.hidden_dropout
        self.attention = attention
        self.residual_type: torch.dtype | None = None
        """The format of the first LayerNorm's output on a GPU; None keeps the format in which LayerNorm computes."""
        self.output_type: torch.dtype | None = None
        """The same for the second LayerNorm, whose output is the layer's output."""
        self.await_weights: Callable[[], object] = _weights_are_here
        """Waits for the layer's weights; sliced weights replace it (gradients/slices.py). Whoever runs the parts of a
        layer instead of calling it calls this first."""
        self.qkv = Linear(shape.hidden_size, 3 * shape.hidden_size)
        self.attention_output = Linear(shape.hidden_size, shape.hidden_size)
        self.attention_norm = AddNorm(shape.hidden_size, eps=shape.layer_norm_eps)
        self.feed_forward_in = Linear(shape.hidden_size, shape.feed_forward_size)
        self.feed_forward_out = Linear(shape.feed_forward_size, shape.hidden_size)
        self.feed_forward_norm = AddNorm(shape.hidden_size, eps=shape.layer_norm_eps)

    def forward(self, hidden_TD: Tensor, sequences: Sequences, read_R: Tensor | None = None) -> Tensor:
        """Run one layer: [T, D] in, [T, D] out; [R, D] if only the tokens at read_R will be read.

        Attention needs the keys and values of all tokens; the rest of the layer needs only the tokens that it returns.
        """
        self.await_weights()
        context_TD = self.attend(self.before_attention(hidden_TD), sequences)
        if read_R is not None:
            context_TD = context_TD.index_select(0, read_R)
            hidden_TD = hidden_TD.index_select(0, read_R)
        return self.after_attention(context_TD, hidden_TD)

    def attend(self, qkv_T3D: Tensor, sequences: Sequences) -> Tensor:
        """Return attention's output from query, key and value of all heads: [T, 3 D] in, [T, D] out."""
        dropout = self.attention_dropout if self.training else 0.0
        with in_phase(ATTENTION):
            context_THK = self.attention(qkv_T3D.unflatten(-1, (3, self.heads, -1)), sequences, dropout)
        return context_THK.flatten(1)

    def before_attention(self, hidden_TD: Tensor) -> Tensor:
        """Return query, key and value of all heads: [T, D] in, [T, 3 D] out."""
        return self.qkv(hidden_TD)

    def after_attention(self, context_RD: Tensor, hidden_RD: Tensor | UnscaledStates) -> Tensor:
        """Return the layer's output from attention's output and the layer's input: [R, D]."""
        assert isinstance(hidden_RD, Tensor), "only compiled layers take unscaled states"
        rate = self.hidden_dropout if self.training else 0.0
        attended_RD = self.attention_norm(self.attention_output(context_RD), hidden_RD, rate)
        attended_RD = in_format(attended_RD, self.residual_type)
        expanded_RF = gelu(self.feed_forward_in(attended_RD))
        output_RD = self.feed_forward_norm(self.feed_forward_out(expanded_RF), attended_RD, rate)
        return in_format(output_RD, self.output_type)


def _weights_are_here() -> None:
    """Wait for nothing: this rank keeps whole weights."""


def in_format(tensor: Tensor, dtype: torch.dtype | None) -> Tensor:
    """Return the tensor in `dtype`, or unchanged if `dtype` is None.

    Use it to convert what an autograd.Function returns: torch 2.11's compiler loses the gradient of an output that
    passes through a `.to` without effect.
    """
    return tensor if dtype in (None, tensor.dtype) else tensor.to(dtype)


def recompute(layers: Iterable[nn.Module]) -> None:
    """Make layers keep only their inputs and run again in the backward pass (Chen et al. 2016, arXiv 1604.06174).

    Memory then holds the activations of one layer at a time, at the cost of a third more work. Parameter names don't
    change.
    """
    for layer in layers:
        layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)
