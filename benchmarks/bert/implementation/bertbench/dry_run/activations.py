"""What the backward pass needs kept, by tokens and by pairs of tokens: measured on the model's own modules, fake.

So any microbatch of any layout is a sum, where measuring it would take as long as building it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import nn

from bertbench.config import System
from bertbench.dry_run.fake import kept_bytes, kernels, summed_loss, synthetic_batch
from bertbench.model.bert import Bert, Embeddings
from bertbench.model.encoder import EncoderLayer
from bertbench.model.linear import Linear
from bertbench.model.precision import computing
from bertbench.model.sequences import Sequences

# of different lengths, as in training: equal ones share products
_BATCHES = ([160, 96], [128, 72, 56], [320, 192])


@dataclass(frozen=True)
class Kept:
    """Bytes that a part of the model keeps of a microbatch."""

    always: float
    """Independent of the microbatch: weights in the format of the products."""
    token: float
    pair: float
    """For each token and token of the same sequence."""

    def bytes(self, tokens: float, pairs: float) -> float:
        """Return the bytes of a microbatch with these numbers of both."""
        return self.always + self.token * tokens + self.pair * pairs


def layer_keeps(system: System, tensor: int, sequence: bool) -> Kept:
    """One encoder layer on one of `tensor` ranks that share it, with `sequence` its tokens too."""
    return _fitted(partial(_layer, system, tensor, tensor if sequence else 1))


def embeddings_keep(system: System) -> Kept:
    """Count the embeddings."""
    return _fitted(partial(_embeddings, system))


def heads_keep(system: System) -> Kept:
    """Both heads and their losses, with Wikipedia's share of masked tokens."""
    return _fitted(partial(_heads, system))


def _fitted(measure: Callable[[np.ndarray], int]) -> Kept:
    batches = [np.array(lengths) for lengths in _BATCHES]
    terms = np.array([[1, lengths.sum(), np.square(lengths).sum()] for lengths in batches], dtype=np.float64)
    return Kept(*map(float, np.linalg.solve(terms, [measure(lengths) for lengths in batches])))


def _layer(system: System, tensor: int, token_shares: int, lengths_S: np.ndarray) -> int:
    shape, tokens = system.model.shape(), int(lengths_S.sum())
    hidden, inner = shape.hidden_size, shape.feed_forward_size // tensor

    def build() -> tuple[nn.Module, Callable[[], torch.Tensor]]:
        layer = EncoderLayer(shape, *kernels(system))
        layer.heads //= tensor
        layer.qkv = Linear(hidden, 3 * hidden // tensor)
        layer.attention_output = Linear(hidden // tensor, hidden)
        layer.feed_forward_in, layer.feed_forward_out = Linear(hidden, inner), Linear(inner, hidden)
        if token_shares > 1:
            _share_tokens(layer, tokens, token_shares)
        hidden_TD = torch.empty(-(-tokens // token_shares), hidden, requires_grad=True)
        return layer, lambda: _computed(system, lambda: layer(hidden_TD, Sequences.of(lengths_S)))

    return kept_bytes(system, build)


def _share_tokens(layer: EncoderLayer, tokens: int, shares: int) -> None:
    """Let products take tensors as large as after a gather, and give ones as large as after a reduce-scatter."""
    for first in (layer.qkv, layer.feed_forward_in):
        first.register_forward_pre_hook(lambda _, given: torch.cat([given[0]] * shares)[:tokens])
    for second in (layer.attention_output, layer.feed_forward_out):
        second.register_forward_hook(lambda _, __, output_TD: output_TD[: -(-tokens // shares)].clone())


def _embeddings(system: System, lengths_S: np.ndarray) -> int:
    def build() -> tuple[nn.Module, Callable[[], torch.Tensor]]:
        embeddings = Embeddings(system.model.shape(), kernels(system)[1])
        tokens_T = torch.zeros(int(lengths_S.sum()), dtype=torch.int32)
        return embeddings, lambda: _computed(system, lambda: embeddings(tokens_T, tokens_T, tokens_T))

    return kept_bytes(system, build)


def _heads(system: System, lengths_S: np.ndarray) -> int:
    batch = synthetic_batch(lengths_S)

    def build() -> tuple[nn.Module, Callable[[], torch.Tensor]]:
        model = Bert(replace(system.model.shape(), layers=1), *kernels(system))
        hidden_TD = torch.empty(len(batch.tokens_T), model.shape.hidden_size, requires_grad=True)
        first_S = batch.sequences.cu_seqlens_S1[:-1]
        return model, lambda: summed_loss(
            system,
            lambda *_: model.heads(hidden_TD[batch.masked_at_M], hidden_TD[first_S], model.embeddings.word.weight),
            batch,
        )

    return kept_bytes(system, build)


def _computed(system: System, compute: Callable[[], torch.Tensor]) -> torch.Tensor:
    with computing(system.precision.compute, torch.device("cpu")):
        return compute()
