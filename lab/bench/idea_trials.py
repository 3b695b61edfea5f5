"""The ideas of a CPU's step that `lab ideas` measures, each with plain code that computes the same.

The plain alternative is torch's own operator, used as well as it can be, or our code without the idea.
"""

from collections.abc import Sequence
from functools import partial

import torch
from torch import nn
from torch.nn import functional

from bertbench.loading.batch import Batch
from bertbench.model.attention import Attention, cpu_attention, plain_attention
from bertbench.model.bert import Bert, look_up
from bertbench.model.dropout import DropoutFunction, apply_dropout, plain_dropout
from bertbench.model.linear import onednn_multiplies
from bertbench.model.loss import IGNORED, weighted_loss
from bertbench.model.sequences import Sequences
from lab.bench.trial import DIFFERENT_MASKS, FP32, Idea, Setting, Tensors, Trial, Trials, size_of

Read = tuple[torch.Tensor | slice, torch.Tensor]
"""Tokens that the masked-LM head scores, and their labels."""

_RATE = 0.1  # BERT's dropout
_TORCH = "torch's attention, by length"


def heads(setting: Setting) -> Trials:
    """Score masked tokens only."""
    model, batch = setting.model("small"), setting.batch("small")
    labels_T = torch.full((len(batch.tokens_T),), IGNORED).index_copy_(0, batch.masked_at_M, batch.masked_labels_M)
    every, masked = (slice(None), labels_T), (batch.masked_at_M, batch.masked_labels_M)
    sides = partial(_pass, model, batch, every), partial(_pass, model, batch, masked)
    yield Trial("scores of all tokens", size_of("small's pass", batch), "model/bert.py", sides)


def words(setting: Setting) -> Trials:
    """Add the lookup's gradient to the head's."""
    batch, shape = setting.batch("medium"), setting.shapes["medium"]
    word_VD = nn.Parameter(torch.randn(shape.vocab_size, shape.hidden_size))
    hidden_MD = torch.randn(len(batch.masked_at_M), shape.hidden_size)
    gradient_TD = torch.randn(len(batch.tokens_T), shape.hidden_size)
    gradient_MV = torch.randn(len(hidden_MD), shape.vocab_size)

    def passes(rows_TD: torch.Tensor, matrix_VD: torch.Tensor) -> Tensors:
        scores_MV = functional.linear(hidden_MD, matrix_VD)
        return torch.autograd.grad((rows_TD, scores_MV), word_VD, (gradient_TD, gradient_MV))

    sides = (
        lambda: passes(functional.embedding(batch.tokens_T, word_VD), word_VD),
        lambda: passes(*look_up(word_VD, batch.tokens_T)),
    )
    yield Trial("a gradient for each use", size_of("medium's words", batch), "model/bert.py", sides)


def last_layer(setting: Setting) -> Trials:
    """Compute only what the heads read in the last layer."""
    model, batch = setting.model("small"), setting.batch("small")
    sides = partial(_pass, model, batch, (batch.masked_at_M, batch.masked_labels_M)), partial(_pass, model, batch)
    yield Trial("a whole last layer", size_of("small's pass", batch), "model/encoder.py", sides)


def attention(setting: Setting) -> Trials:
    """Compute attention in place; without dropout, as in evaluation, torch's is fused. bf16 gathers all heads."""
    kinds = [(_RATE, torch.float32), (0.0, torch.float32)]
    if onednn_multiplies(torch.bfloat16):
        kinds.append((_RATE, torch.bfloat16))
    for rate, dtype in kinds:
        yield _attention(setting, "medium", _TORCH, torch_attention, rate, "model/attention.py", dtype)


def squares(setting: Setting) -> Trials:
    """Let short sequences share products, in squares."""
    for name, plain in (("a product per length", plain_attention), (_TORCH, torch_attention)):
        yield _attention(setting, "demo", name, plain, 0.0, "model/sequences.py", torch.float32)


def dropout(setting: Setting) -> Trials:
    """Draw dropout's masks from bits."""
    batch, width = setting.batch("medium"), setting.shapes["medium"].hidden_size
    hidden_TD, residual_TD, gradient_TD = torch.randn(3, len(batch.tokens_T), width)
    hidden_TD.requires_grad_()

    def passes(function: DropoutFunction) -> Tensors:
        return _results(function(hidden_TD, _RATE, residual_TD), [hidden_TD], gradient_TD)

    sides = partial(passes, plain_dropout), partial(passes, apply_dropout)
    size = size_of("medium's hidden states", batch)
    yield Trial("torch's dropout", size, "model/dropout.py", sides, tolerance=DIFFERENT_MASKS)


_ALL: tuple[Idea, ...] = (heads, words, last_layer, attention, squares, dropout)
IDEAS = {idea.__name__: idea for idea in _ALL}


def torch_attention(qkv_T3HK: torch.Tensor, sequences: Sequences, dropout: float) -> torch.Tensor:
    """Compute `cpu_attention` by torch's operator, once for neighbouring sequences of one length."""
    contexts = []
    by_length = qkv_T3HK.split([group.sequences * group.length for group in sequences.groups])
    for group, part_N3HK in zip(sequences.groups, by_length, strict=True):
        query, key, value = part_N3HK.unflatten(0, (group.sequences, group.length)).transpose(1, 3).unbind(2)
        context = functional.scaled_dot_product_attention(query, key, value, dropout_p=dropout)
        contexts.append(context.transpose(1, 2).flatten(0, 1))
    return torch.cat(contexts)


def _attention(
    setting: Setting, size: str, name: str, plain: Attention, rate: float, file: str, dtype: torch.dtype
) -> Trial:
    batch, shape = setting.batch(size), setting.shapes[size]
    heads, width = shape.attention_heads, shape.hidden_size // shape.attention_heads
    qkv_T3HK = torch.randn(len(batch.tokens_T), 3, heads, width, dtype=dtype, requires_grad=True)
    gradient_THK = torch.randn(len(batch.tokens_T), heads, width, dtype=dtype)

    def passes(function: Attention) -> Tensors:
        return _results(function(qkv_T3HK, batch.sequences, rate), [qkv_T3HK], gradient_THK)

    size = size_of(f"{size}'s, dropout {rate:g}{', bf16' if dtype == torch.bfloat16 else ''}", batch)
    sides = partial(passes, plain), partial(passes, cpu_attention)
    return Trial(name, size, file, sides, tolerance=DIFFERENT_MASKS if rate else FP32)


def _pass(model: Bert, batch: Batch, read: Read | None = None) -> Tensors:
    """Return the loss and its gradients; with `read`, the last layer returns all tokens."""
    if read is None:
        scores, labels_M = model(*batch.inputs), batch.masked_labels_M
    else:
        hidden_TD, (places, labels_M) = model.hidden(*batch.inputs[:4]), read
        first_SD = hidden_TD[batch.sequences.cu_seqlens_S1[:-1]]
        scores = model.heads(hidden_TD[places], first_SD, model.embeddings.word.weight)
    weights = 1 / len(batch.masked_at_M), 1 / len(batch.next_sentence_S)
    return _results(weighted_loss(scores, labels_M, batch.next_sentence_S, *weights), list(model.parameters()))


def _results(output: torch.Tensor, inputs: Sequence[torch.Tensor], gradient: torch.Tensor | None = None) -> Tensors:
    """Return an output and its gradients."""
    return output.detach(), *torch.autograd.grad(output, inputs, gradient)
