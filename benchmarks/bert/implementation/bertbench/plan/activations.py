"""What the backward pass needs kept, by tokens and by pairs of tokens: measured on the model's own modules.

Few tokens are enough: the rest is a sum, for any microbatch of any layout. A GPU's modules run on the CPU as there,
except for the flash kernel, which a stand-in replaces that keeps the same tensors.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from bertbench.balance.random_samples import samples_of
from bertbench.config import System
from bertbench.data.store.columns import Integers
from bertbench.loading.batch import Batch, batch_of
from bertbench.model import loops
from bertbench.model.arithmetic import autocast_type, computing
from bertbench.model.attention import Attention, attention, flash_takes
from bertbench.model.bert import Bert, Embeddings
from bertbench.model.encoder import EncoderLayer
from bertbench.model.linear import Linear
from bertbench.model.loss import Scores, weighted_loss
from bertbench.model.sequences import Sequences
from bertbench.model.shape import BertShape

# of different lengths, as in training: equal ones share products; 15 % of each, which are masked, are whole tokens
_BATCHES = ([40, 20], [60, 20], [60, 40, 20])
_TOKENS = 1024  # of a CPU's batch: its attention rounds lengths up, as a run's own does


class Kept(NamedTuple):
    """Bytes that a part of the model keeps of a microbatch."""

    always: float
    """Independent of the microbatch: weights in the format of the products."""
    token: float
    pair: float
    """For each token and token of the same sequence."""

    def bytes(self, tokens: float, pairs: float) -> float:
        """Return the bytes of a microbatch with these numbers of both."""
        return self.always + self.token * tokens + self.pair * pairs


class ModelKept(NamedTuple):
    """What the parts of a model keep."""

    layer: Kept
    """One encoder layer on one of the ranks that share it."""
    embeddings: Kept
    heads: Kept
    """Both heads and their losses, with Wikipedia's share of masked tokens, less what the last layer keeps less than
    others: it computes the tokens that the heads read."""


def model_keeps(system: System, tensor: int = 1, sequence: bool = False) -> ModelKept:
    """Measure a model whose layers `tensor` ranks share, with `sequence` their tokens too; systems alike only once."""
    key = system.model.shape(), system.precision.compute, system.launch.device, tensor, sequence
    if key not in _MEASURED:
        layer = _layer(system, tensor, tensor if sequence else 1)
        if tensor > 1:
            _MEASURED[key] = model_keeps(system)._replace(layer=layer)
        else:
            shape, positions = system.model.shape(), max(system.model.max_positions, *map(max, _BATCHES))
            with torch.device("meta"):
                inputs = Embeddings(shape)
                model = Bert(replace(shape, layers=1, max_positions=positions), kernel(system))
            for module in (inputs, model):
                module.to_empty(device="cpu")  # drawing weights would take most of the time: only their sizes matter
            embeddings = _fitted(
                system, inputs, lambda lengths_S: inputs(*[torch.zeros(int(lengths_S.sum()), dtype=torch.int32)] * 3)
            )
            whole = _fitted(system, model, lambda lengths_S: summed_loss(model, batch_of_lengths(lengths_S)))
            heads = Kept(*np.subtract(whole, np.add(layer, embeddings)).tolist())
            _MEASURED[key] = ModelKept(layer, embeddings, heads)
    return _MEASURED[key]


_MEASURED: dict[tuple[BertShape, str, str, int, bool], ModelKept] = {}


def _fitted(system: System, module: nn.Module, compute: Callable[[Integers], Tensor]) -> Kept:
    """Measure a module on each batch, by a function that computes sequences of these lengths."""
    batches = [np.array(lengths) for lengths in _BATCHES]
    if system.launch.device == "cpu":
        longest = system.model.max_positions
        count = max(2, _TOKENS // longest)
        batches = [np.full(count, longest), np.full(2 * count, longest), np.full(2 * count, longest // 2)]
    terms = np.array([[1, lengths.sum(), np.square(lengths).sum()] for lengths in batches], dtype=np.float64)
    kept = [kept_bytes(system, module, partial(compute, batch)) for batch in batches]
    return Kept(*np.linalg.solve(terms, kept).tolist())


def _layer(system: System, tensor: int, token_shares: int) -> Kept:
    shape = system.model.shape()
    hidden, inner = shape.hidden_size, shape.feed_forward_size // tensor
    with torch.device("meta"):
        layer = EncoderLayer(shape, kernel(system))
        layer.heads //= tensor
        layer.qkv = Linear(hidden, 3 * hidden // tensor)
        layer.attention_output = Linear(hidden // tensor, hidden)
        layer.feed_forward_in, layer.feed_forward_out = Linear(hidden, inner), Linear(inner, hidden)
    layer.to_empty(device="cpu")
    if token_shares > 1:
        _share_tokens(layer, token_shares)

    def compute(lengths_S: Integers) -> Tensor:
        hidden_TD = torch.zeros(-(-int(lengths_S.sum()) // token_shares), hidden, requires_grad=True)
        output_TD: Tensor = layer(hidden_TD, Sequences.of(lengths_S))
        return output_TD

    return _fitted(system, layer, compute)


def _share_tokens(layer: EncoderLayer, shares: int) -> None:
    """Let products take tensors as large as after a gather, and give ones as large as after a reduce-scatter."""
    for first in (layer.qkv, layer.feed_forward_in):
        first.register_forward_pre_hook(lambda _, given: torch.cat([given[0]] * shares))
    for second in (layer.attention_output, layer.feed_forward_out):
        second.register_forward_hook(lambda _, __, output_TD: output_TD[: len(output_TD) // shares].clone())


def kept_bytes(system: System, module: nn.Module, compute: Callable[[], Tensor]) -> int:
    """Return the bytes that a forward pass on the system's device keeps for its backward pass, but for weights."""
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage
        return tensor

    with ExitStack() as contexts:
        if system.launch.device == "cuda":
            contexts.enter_context(loops.unused())
            contexts.enter_context(_AsCuda(autocast_type(system.precision.compute)))
        contexts.enter_context(computing(system.precision.compute, torch.device("cpu")))
        contexts.enter_context(torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor))
        output = compute()
    for tensor in (output, *module.parameters()):  # the next module counts the output as its input
        kept.pop(tensor.untyped_storage().data_ptr(), None)
    return sum(storage.nbytes() for storage in kept.values())


def kernel(system: System) -> Attention:
    """Return how the model of such a system does attention."""
    dtype = autocast_type(system.precision.compute)
    width = system.model.hidden_size // system.model.attention_heads
    flashes = system.launch.device == "cuda" and dtype is not None and flash_takes(dtype, width)
    return _KeptByFlash.apply if flashes else attention


class _KeptByFlash(torch.autograd.Function):
    """Keep what the flash kernel keeps: its inputs, its output, and an fp32 number for each head and token."""

    @staticmethod
    def forward(context: Any, qkv_T3HK: Tensor, sequences: Sequences, dropout: float) -> Tensor:
        """Return a tensor of the output's size."""
        del sequences, dropout
        output_THK = qkv_T3HK[:, 0].clone(memory_format=torch.contiguous_format)
        context.save_for_backward(qkv_T3HK, output_THK, torch.empty(output_THK.shape[:2]))
        return output_THK


class _KeptByProduct(torch.autograd.Function):
    """Keep both factors of a product with a weight, uncomputed."""

    @staticmethod
    def forward(context: Any, given: Tensor, weight: Tensor) -> Tensor:
        """Return a tensor of the product's size."""
        context.save_for_backward(given, weight)
        return given.new_empty(*given.shape[:-1], len(weight))


def summed_loss(model: Callable[..., Scores], batch: Batch) -> Tensor:
    """Compute the trainer's loss, but for its weights."""
    return weighted_loss(model(*batch.inputs), *batch.labels, 1, 1)


class _AsCuda(TorchFunctionMode):
    """Keep what CUDA keeps and a CPU doesn't.

    Autocast computes softmax and LayerNorm in fp32 (torch.amp's op reference); dropout keeps bytes, not factors.
    Products and casts of weights aren't computed: a CPU would take seconds, and only their sizes matter.
    """

    def __init__(self, dtype: torch.dtype | None) -> None:
        """Take the format of products, None where autocast is off."""
        super().__init__()
        self._dtype = dtype

    def __torch_function__(
        self, function: Any, types: Any, arguments: Sequence[Any] = (), options: dict[str, Any] | None = None
    ) -> Any:
        if function is functional.linear:
            given, weight, *_ = arguments
            cast = torch.empty_like(weight, dtype=self._dtype) if self._dtype else weight
            return _KeptByProduct.apply(given.to(self._dtype), cast)
        if self._dtype and function in (Tensor.softmax, functional.layer_norm):
            arguments = (arguments[0].float(), *arguments[1:])
        options = options or {}
        if function is functional.dropout and options["p"] > 0:
            return torch.native_dropout(arguments[0], options["p"], options["training"])[0]
        return function(*arguments, **options)


def batch_of_lengths(lengths_S: Integers) -> Batch:
    """Return sequences of these lengths with Wikipedia's share of masked tokens; content doesn't matter."""
    return batch_of(samples_of(np.sort(lengths_S)[::-1], seed=1, vocabulary=6))
