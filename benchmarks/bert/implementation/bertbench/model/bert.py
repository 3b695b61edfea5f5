"""Define BERT for pre-training: flat tokens in, scores of masked tokens and of sentence pairs out.

Shapes: T tokens in the batch, S sequences, M masked tokens, R = M + S tokens that the heads read, D hidden size,
V vocabulary rows.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from bertbench.model.attention import Attention, attention
from bertbench.model.encoder import EncoderLayer, UnscaledStates, in_format
from bertbench.model.head_loss import head_loss
from bertbench.model.linear import BY_TORCH, linear
from bertbench.model.loops import apply_dropout, gelu
from bertbench.model.loss import Labels, LossSums, Scores
from bertbench.model.options import ResidualName
from bertbench.model.sequences import Sequences
from bertbench.model.shape import BertShape

Between = Callable[[EncoderLayer, EncoderLayer, Tensor, UnscaledStates], tuple[Tensor, Tensor]]
"""Computes the end of a layer and the beginning of the next: `between_attentions` of compiled_layer.py, compiled."""
CrossEntropySum = Callable[[Tensor, Tensor], Tensor]
"""Sums the cross-entropies of logits and labels, like the function in model/loss.py."""


class BertInputs(NamedTuple):
    """What a model reads of a flat batch."""

    tokens_T: Tensor
    segments_T: Tensor
    positions_T: Tensor
    sequences: Sequences
    masked_at_M: Tensor
    """The places of the masked tokens in the batch."""


class Embeddings(nn.Module):
    """Word + position + segment embeddings, LayerNorm, dropout."""

    def __init__(self, shape: BertShape) -> None:
        super().__init__()
        self.dropout = shape.hidden_dropout
        self.residual_type: torch.dtype | None = None
        """The format of the hidden states on a GPU, as in EncoderLayer."""
        self.word = nn.Embedding(shape.vocab_size, shape.hidden_size)
        self.position = nn.Embedding(shape.max_positions, shape.hidden_size)
        self.token_type = nn.Embedding(shape.token_types, shape.hidden_size)
        self.norm = nn.LayerNorm(shape.hidden_size, eps=shape.layer_norm_eps)

    def forward(
        self, tokens_T: Tensor, segments_T: Tensor, positions_T: Tensor, tie: bool = False
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Embed flat tokens: three [T] in, [T, D] out; with `tie`, also return the word embeddings for the head."""
        if tie:
            word_TD, word_VD = look_up(self.word.weight, tokens_T)
        else:
            word_TD = self.word(tokens_T)
        sum_TD = word_TD + self.position(positions_T) + self._token_type_of(segments_T)
        rate = self.dropout if self.training else 0.0
        hidden_TD = apply_dropout(self.norm(sum_TD), rate)
        hidden_TD = in_format(hidden_TD, self.residual_type)
        return (hidden_TD, word_VD) if tie else hidden_TD

    def _token_type_of(self, segments_T: Tensor) -> Tensor:
        is_compiled = torch.compiler.is_compiling()
        if not is_compiled or self.token_type.num_embeddings != 2:
            return self.token_type(segments_T)
        # The gradient of a lookup needs T x D atomic additions into two rows; this one is two sums in a fixed order
        first_1D, second_1D = self.token_type.weight.split(1)
        return torch.where(segments_T[:, None] == 0, first_1D, second_1D)


class MaskedLmHead(nn.Module):
    """Dense layer, GELU, LayerNorm, then a product with the word embeddings as output matrix, plus a separate bias."""

    products = BY_TORCH

    def __init__(self, shape: BertShape) -> None:
        super().__init__()
        self.dense = nn.Linear(shape.hidden_size, shape.hidden_size)
        self.norm = nn.LayerNorm(shape.hidden_size, eps=shape.layer_norm_eps)
        self.bias = nn.Parameter(torch.zeros(shape.vocab_size))

    def forward(self, hidden_MD: Tensor, word_VD: Tensor, labels_M: Tensor | None = None) -> Tensor:
        """Return scores over the vocabulary, [M, D] in, [M, V] out; with labels, the sum of their cross-entropies."""
        hidden_MD = self.norm(gelu(self.dense(hidden_MD)))
        if labels_M is not None:
            return head_loss(hidden_MD, word_VD, self.bias, labels_M)
        return linear(hidden_MD, word_VD, self.bias, self.products)

    def predictions(self, hidden_MD: Tensor, word_VD: Tensor) -> Tensor:
        """Return the id of each token's highest score: [M, D] in, [M] out."""
        return self(hidden_MD, word_VD).argmax(dim=-1)


class ReadStates(NamedTuple):
    """What both heads read."""

    masked_MD: Tensor
    """The hidden states of masked tokens."""
    first_SD: Tensor
    """Those of each sequence's first token."""
    word_VD: Tensor
    """The word embeddings, the output matrix of the masked-LM head."""


class WithHeads(nn.Module):
    """A BERT, or its last pipeline stage, with the two pre-training heads."""

    masked_lm: MaskedLmHead
    pooler: nn.Linear
    next_sentence: nn.Linear
    sum_pair_losses: CrossEntropySum | None = None
    """Sums the losses of sentence pairs where `masked_lm` returns the sum of its own: in a compiled model, and with a
    split vocabulary. None where losses are summed from both heads' scores."""

    def head_scores(self, read: ReadStates) -> Scores:
        """Return the scores of both heads."""
        next_sentence_S2 = self._pair_scores(read)
        return Scores(self.masked_lm(read.masked_MD, read.word_VD), next_sentence_S2)

    def head_losses(self, read: ReadStates, labels: Labels) -> LossSums:
        """Return the sums of both heads' losses."""
        if self.sum_pair_losses is None:
            return LossSums.of(self.head_scores(read), labels)
        next_sentence_S2 = self._pair_scores(read)
        return LossSums(
            self.masked_lm(read.masked_MD, read.word_VD, labels.masked_M),
            self.sum_pair_losses(next_sentence_S2, labels.next_sentence_S),
        )

    def _pair_scores(self, read: ReadStates) -> Tensor:
        pair_scores_S2: Tensor = self.next_sentence(torch.tanh(self.pooler(read.first_SD)))
        return pair_scores_S2


class Bert(WithHeads):
    """BERT with its two pre-training heads; no tensor in it has a padded dimension."""

    is_compiled = False
    """Whether torch compiles the pieces of the model (compiled.py)."""
    between: Between | None = None
    """If given, runs the end of each layer and the beginning of the next as one compiled piece."""

    def __init__(self, shape: BertShape, attention: Attention = attention) -> None:
        super().__init__()
        self.shape = shape
        self.embeddings = Embeddings(shape)
        self.layers = nn.ModuleList(EncoderLayer(shape, attention) for _ in range(shape.layers))
        self.masked_lm = MaskedLmHead(shape)
        self.pooler = nn.Linear(shape.hidden_size, shape.hidden_size)
        self.next_sentence = nn.Linear(shape.hidden_size, 2)

    def initialize(self, generator: torch.Generator) -> None:
        """Draw matrices from a normal distribution truncated at two standard deviations, like google-research/bert."""
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                draw_normal(module.weight, self.shape.initializer_range, generator)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)
            if isinstance(module, nn.LayerNorm):
                module.reset_parameters()
        nn.init.zeros_(self.masked_lm.bias)

    def fused_parameters(self) -> dict[Tensor, int]:
        """Return the parameters that stack query, key and value along their first dimension, with their number."""
        stacked: dict[Tensor, int] = {}
        for layer in self.encoder_layers():
            for parameter in layer.qkv.parameters():
                stacked[parameter] = 3
        return stacked

    def keep_residual(self, residual: ResidualName) -> None:
        """Pass hidden states between layers in this format (fp32 for `auto`); LayerNorms still compute in fp32."""
        dtype = torch.bfloat16 if residual == "bf16" else None
        self.embeddings.residual_type = dtype
        layers = self.encoder_layers()
        for layer in layers:
            layer.residual_type = dtype
        for layer in layers[:-1]:  # the last layer's output goes to the heads: see hand_to_heads
            layer.output_type = dtype

    def hand_to_heads(self, dtype: torch.dtype | None) -> None:
        """Let the last layer return its output in the format of the heads' products.

        The cast then belongs to a compiled piece and needs no kernel of its own.
        """
        self.encoder_layers()[-1].output_type = dtype

    def join_layers(self, between: Between) -> None:
        """Let this function compute the end of each layer together with the beginning of the next."""
        self.between = between
        weight_D = self.embeddings.norm.weight.detach()
        # the first layer's input comes from the embeddings, whose LayerNorm is finished: these change nothing
        self._weight_of_ones_D = torch.ones_like(weight_D)
        self._bias_of_zeros_D = torch.zeros_like(weight_D)

    def encoder_layers(self) -> list[EncoderLayer]:
        """Return the layers, first to last."""
        return [layer for layer in self.layers if isinstance(layer, EncoderLayer)]

    def hidden(self, inputs: BertInputs) -> Tensor:
        """Return the last layer's output for every token: [T, D]."""
        hidden_TD = self.embeddings(inputs.tokens_T, inputs.segments_T, inputs.positions_T)
        for layer in self.layers:
            hidden_TD = layer(hidden_TD, inputs.sequences)
        return hidden_TD

    def forward(self, inputs: BertInputs) -> Scores:
        """Return scores of the masked tokens and of each sentence pair."""
        return self.head_scores(self._read(inputs))

    def loss_sums(self, inputs: BertInputs, labels: Labels) -> LossSums:
        """Return the sums of both heads' losses; a compiled model keeps no scores."""
        return self.head_losses(self._read(inputs), labels)

    def _read(self, inputs: BertInputs) -> ReadStates:
        """Return what the heads read: a seventh of the tokens. The last layer returns only those.

        This saves 5 % of the matrix products in the encoder of BERT-Base, and 3 % in that of BERT-Large.
        """
        tokens_T, segments_T, positions_T, sequences, masked_at_M = inputs
        if self.is_compiled:
            # on a GPU, one gradient for both uses of the embeddings would save 0.25 of 168 GB (computed)
            hidden_TD = self.embeddings(tokens_T, segments_T, positions_T)
            word_VD = self.embeddings.word.weight
        else:
            hidden_TD, word_VD = self.embeddings(tokens_T, segments_T, positions_T, tie=True)
        first_at_S = sequences.cu_seqlens_S1[:-1]
        read_R = torch.cat((masked_at_M, first_at_S))
        if self.between is not None:
            read_RD = self._joined_layers(self.between, hidden_TD, sequences, read_R)
        else:
            for layer in self.layers[:-1]:
                hidden_TD = layer(hidden_TD, sequences)
            read_RD = self.layers[-1](hidden_TD, sequences, read_R)
        # the gradient of a split is one concatenation; that of slices would fill tensors with zeros and add them up
        masked_MD, first_SD = read_RD.split((len(masked_at_M), len(read_R) - len(masked_at_M)))
        return ReadStates(masked_MD, first_SD, word_VD)

    def _joined_layers(self, between: Between, hidden_TD: Tensor, sequences: Sequences, read_R: Tensor) -> Tensor:
        """Run all layers, each joined to the next; return the last one's output for the tokens at read_R: [R, D]."""
        layer, *following_layers = self.encoder_layers()
        layer.await_weights()  # joined pieces don't call the layer
        qkv_T3D = layer.before_attention(hidden_TD)
        input_TD = UnscaledStates(hidden_TD, self._weight_of_ones_D, self._bias_of_zeros_D)
        for following in following_layers:
            following.await_weights()
            context_TD = layer.attend(qkv_T3D, sequences)
            normalised_TD, qkv_T3D = between(layer, following, context_TD, input_TD)
            norm = layer.feed_forward_norm
            input_TD = UnscaledStates(normalised_TD, norm.weight.detach(), norm.bias.detach())
            layer = following
        context_RD = layer.attend(qkv_T3D, sequences).index_select(0, read_R)
        input_RD = input_TD._replace(normalised_TD=input_TD.normalised_TD.index_select(0, read_R))
        return layer.after_attention(context_RD, input_RD)


def draw_normal(weight: Tensor, deviation: float, generator: torch.Generator) -> None:
    """Fill a tensor from a normal distribution truncated at two standard deviations.

    For a tensor without memory, the same count of numbers is drawn and discarded. Later draws therefore don't depend on
    which rank holds which tensor.
    """
    drawn = torch.empty(weight.shape) if weight.is_meta else weight
    nn.init.trunc_normal_(drawn, 0.0, deviation, -2 * deviation, 2 * deviation, generator)


AnyBert = TypeVar("AnyBert", bound=Bert)


def with_memory_for(make: Callable[[], AnyBert], held: Iterable[str]) -> AnyBert:
    """Return a model, not yet initialized, that has memory for these modules only; the others are meta tensors."""
    with torch.device("meta"):
        model = make()
    for name in held:
        model.get_submodule(name).to_empty(device="cpu")
    return model


def look_up(word_VD: Tensor, tokens_T: Tensor) -> tuple[Tensor, Tensor]:
    """Return the tokens' rows [T, D], and the matrix for the head, which must use it exactly once.

    torch computes two gradients for a matrix that is used twice, and adds them up. BERT's word embeddings are its
    largest tensor: 62 MB at medium size. Here, the lookup's gradient, of some thousand rows, is added to the head's.
    """
    if not _is_plain(word_VD):
        return functional.embedding(tokens_T, word_VD), word_VD
    rows_TD, matrix_VD = _Tied.apply(word_VD, tokens_T)
    return rows_TD, matrix_VD


def _is_plain(word_VD: Tensor) -> bool:
    """Return whether the matrix is an ordinary parameter on a CPU: not sharded over ranks, not one of torch.func."""
    return type(word_VD) is nn.Parameter and word_VD.device.type == "cpu"


class _Tied(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, word_VD: Tensor, tokens_T: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(tokens_T)
        return word_VD.index_select(0, tokens_T), word_VD.view_as(word_VD)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_TD: Tensor, gradient_VD: Tensor) -> tuple[Tensor, None]:
        (tokens_T,) = ctx.saved_tensors
        # in place, because the head's single use of the matrix has just made gradient_VD and nothing else reads it
        return gradient_VD.index_add_(0, tokens_T, gradient_TD), None
