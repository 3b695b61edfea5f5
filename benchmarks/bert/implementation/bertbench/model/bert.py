"""BERT for pre-training: flat tokens in, scores of masked tokens and of sentence pairs out.

Shapes: T tokens in the batch, S sequences, M masked tokens, D hidden size, V vocabulary rows.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional

from bertbench.model.attention import Attention, attention
from bertbench.model.dropout import DropoutFunction, apply_dropout
from bertbench.model.encoder import EncoderLayer
from bertbench.model.linear import BY_TORCH, linear
from bertbench.model.options import ResidualName
from bertbench.model.precision import in_format
from bertbench.model.sequences import Sequences
from bertbench.model.shape import BertShape


class Scores(NamedTuple):
    """Logits of both heads."""

    masked_lm_MV: torch.Tensor
    next_sentence_S2: torch.Tensor


class Embeddings(nn.Module):
    """Word + position + segment embeddings, LayerNorm, dropout."""

    def __init__(self, shape: BertShape, apply_dropout: DropoutFunction) -> None:
        super().__init__()
        self.apply_dropout = apply_dropout
        self.dropout = shape.hidden_dropout
        self.residual_type: torch.dtype | None = None
        """See EncoderLayer."""
        self.word = nn.Embedding(shape.vocab_size, shape.hidden_size)
        self.position = nn.Embedding(shape.max_positions, shape.hidden_size)
        self.token_type = nn.Embedding(shape.token_types, shape.hidden_size)
        self.norm = nn.LayerNorm(shape.hidden_size, eps=shape.layer_norm_eps)

    def forward(self, tokens_T: torch.Tensor, segments_T: torch.Tensor, positions_T: torch.Tensor) -> torch.Tensor:
        """Embed flat tokens: three [T] in, [T, D] out."""
        hidden_TD = self.word(tokens_T) + self.position(positions_T) + self._of_token_type(segments_T)
        hidden_TD = self.apply_dropout(self.norm(hidden_TD), self.dropout if self.training else 0.0)
        return in_format(hidden_TD, self.residual_type)

    def _of_token_type(self, segments_T: torch.Tensor) -> torch.Tensor:
        if not (torch.compiler.is_compiling() and self.token_type.num_embeddings == 2):
            return self.token_type(segments_T)
        # A lookup's gradient needs T x D atomic additions into two rows; this one needs two sums in a fixed order
        first_1D, second_1D = self.token_type.weight.split(1)
        return torch.where(segments_T[:, None] == 0, first_1D, second_1D)


class MaskedLmHead(nn.Module):
    """Dense, GELU, LayerNorm, then the word embeddings again as the output matrix, plus a separate bias."""

    products = BY_TORCH

    def __init__(self, shape: BertShape) -> None:
        super().__init__()
        self.dense = nn.Linear(shape.hidden_size, shape.hidden_size)
        self.norm = nn.LayerNorm(shape.hidden_size, eps=shape.layer_norm_eps)
        self.bias = nn.Parameter(torch.zeros(shape.vocab_size))

    def forward(self, hidden_MD: torch.Tensor, word_VD: torch.Tensor) -> torch.Tensor:
        """Return scores over the vocabulary: [M, D] in, [M, V] out."""
        hidden_MD = self.norm(functional.gelu(self.dense(hidden_MD), approximate="tanh"))
        return linear(hidden_MD, word_VD, self.bias, self.products)


class Bert(nn.Module):
    """BERT with its two pre-training heads; no tensor in it has a padded dimension."""

    cross_entropy_sum: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] | None = None
    """The compiled loss of the masked tokens (model/compiled.py), if pieces are compiled."""

    def __init__(
        self, shape: BertShape, attention: Attention = attention, apply_dropout: DropoutFunction = apply_dropout
    ) -> None:
        super().__init__()
        self.shape = shape
        self.embeddings = Embeddings(shape, apply_dropout)
        self.layers = nn.ModuleList(EncoderLayer(shape, attention, apply_dropout) for _ in range(shape.layers))
        self.masked_lm = MaskedLmHead(shape)
        self.pooler = nn.Linear(shape.hidden_size, shape.hidden_size)
        self.next_sentence = nn.Linear(shape.hidden_size, 2)

    def initialize(self, generator: torch.Generator) -> None:
        """Draw matrices from a normal distribution cut at two deviations, as google-research/bert does."""
        deviation = self.shape.initializer_range
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.trunc_normal_(module.weight, 0.0, deviation, -2 * deviation, 2 * deviation, generator)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)

    def fused_parameters(self) -> dict[torch.Tensor, int]:
        """Return parameters that stack several logical tensors along their first dimension: query, key and value."""
        return {
            parameter: 3
            for layer in self.modules()
            if isinstance(layer, EncoderLayer)
            for parameter in layer.qkv.parameters()
        }

    def keep_residual(self, residual: ResidualName) -> None:
        """Pass hidden states from layer to layer in this format; LayerNorms still compute in fp32."""
        for module in (self.embeddings, *self.layers):
            module.residual_type = torch.bfloat16 if residual == "bf16" else None

    def hidden(
        self, tokens_T: torch.Tensor, segments_T: torch.Tensor, positions_T: torch.Tensor, sequences: Sequences
    ) -> torch.Tensor:
        """Return the last layer's output for every token: [T, D]."""
        hidden_TD = self.embeddings(tokens_T, segments_T, positions_T)
        for layer in self.layers:
            hidden_TD = layer(hidden_TD, sequences)
        return hidden_TD

    def forward(
        self,
        tokens_T: torch.Tensor,
        segments_T: torch.Tensor,
        positions_T: torch.Tensor,
        sequences: Sequences,
        masked_at_M: torch.Tensor,
    ) -> Scores:
        """Return scores of the masked tokens, at masked_at_M in the flat batch, and of each sequence's pair.

        The heads read a seventh of the tokens, and the last layer returns only those: this saves 5 % of the matrix
        products in base's encoder, 3 % in large's.
        """
        hidden_TD = self.embeddings(tokens_T, segments_T, positions_T)
        for layer in self.layers[:-1]:
            hidden_TD = layer(hidden_TD, sequences)
        read_MS = torch.cat((masked_at_M, sequences.cu_seqlens_S1[:-1]))
        masked_MD, first_SD = self.layers[-1](hidden_TD, sequences, read_MS).tensor_split((len(masked_at_M),))
        return self.heads(masked_MD, first_SD)

    def heads(self, masked_MD: torch.Tensor, first_SD: torch.Tensor) -> Scores:
        """Return both heads' scores, from the hidden states of masked tokens and of each sequence's first token."""
        return Scores(
            self.masked_lm(masked_MD, self.embeddings.word.weight),
            self.next_sentence(torch.tanh(self.pooler(first_SD))),
        )
