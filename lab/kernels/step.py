"""Run BERT's timed step in pieces on fake tensors, and count compiled graphs and the kernels between them.

The modules, the compiled pieces, the loss and the optimizer are those of training. Each piece runs twice: the first run
compiles; the second is counted, like a step in the middle of training.
Shapes: as in model/bert.py.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from bertbench.balance.random_samples import draw_lengths, samples_of_lengths
from bertbench.config.optimizer import OptimizerSettings
from bertbench.gradients.buckets import Buckets, ModelWeights, bucket_table
from bertbench.gradients.clip import after_coefficient
from bertbench.loading.batch import Batch, batch_of
from bertbench.loading.filler import filled_to_round_size
from bertbench.model.attention import flash_attention
from bertbench.model.bert import Bert, ReadStates
from bertbench.model.compiled import compile_pieces
from bertbench.model.encoder import UnscaledStates
from bertbench.model.fp8_linear import multiply_in_fp8
from bertbench.model.fp8_scaling import DelayedScaling
from bertbench.model.loss import LossSums
from bertbench.model.options import PrecisionName, ResidualName
from bertbench.model.rounded_weights import RoundedWeights, rounded_layers
from bertbench.model.shape import BertShape
from bertbench.optim.adam import MultiTensorAdam
from lab.kernels.absent_gpu import Gpu
from lab.kernels.chunked import ChunkedKernels
from lab.kernels.codegen import Graph, generated
from lab.kernels.launches import EagerOperations

PIECES = ("embeddings", "attention", "layer", "head_and_loss", "optimizer", "step")
"""`layer` is everything between two attentions, whose kernel no compiler generates; `step` contains all layers."""
TOKENS = 24_576
"""Tokens of a step on one GPU: 96 samples of Wikipedia's mean length."""
_MEAN_LENGTH = 256
_SEED = 1
_RATE = 1e-3
_PRODUCTS = torch.bfloat16
_WEIGHTS = 1 / 3_000  # weight of both losses; its value doesn't matter


class Counted(NamedTuple):
    """The counts of one piece, forward and backward, in the middle of training."""

    runs: tuple[Graph, ...]
    """The compiled graphs, one for each run."""
    eager: Counter[str]
    """Launches of operations outside compiled graphs, by name."""
    eager_bytes: float
    attention_bytes: float
    """The part of `eager_bytes` that attention's own kernels move, without the kernels that stack its gradients."""
    chunked: Counter[str]
    """Launches of the optimizer's own Triton kernels, whose bytes are included in `eager_bytes`."""

    @property
    def triton_launches(self) -> int:
        """Return how many Triton kernels ran."""
        return sum(run.triton_launches for run in self.runs) + self.chunked.total()

    @property
    def launches(self) -> int:
        """Return how many kernels ran, including those of libraries."""
        return sum(run.launches for run in self.runs) + self.eager.total() + self.chunked.total()

    @property
    def bytes(self) -> float:
        """Return the bytes that all kernels read and wrote."""
        return self.bytes_beside_products + sum(run.product_bytes for run in self.runs)

    @property
    def bytes_beside_products(self) -> float:
        """Return the bytes of all kernels except the matrix products of compiled graphs."""
        return sum(run.kernel_bytes for run in self.runs) + self.eager_bytes


def batch_of_tokens(tokens: int) -> Batch:
    """Return a batch of `tokens` tokens in samples of Wikipedia's lengths, as a GPU receives it."""
    lengths = draw_lengths(2 * tokens // _MEAN_LENGTH + 8, _SEED)
    count = int(np.searchsorted(np.cumsum(lengths), tokens)) + 1
    lengths = lengths[:count]
    lengths[-1] -= lengths.sum() - tokens
    return filled_to_round_size(batch_of(samples_of_lengths(np.sort(lengths)[::-1], _SEED)))


def count_pieces(
    gpu: Gpu,
    shape: BertShape,
    tokens: int,
    residual: ResidualName,
    wanted: Sequence[str],
    precision: PrecisionName = "bf16",
) -> dict[str, Counted]:
    """Run and count each piece on fake tensors, with code generated for `gpu`; `layer` needs `attention` too."""
    eager = EagerOperations()
    ran: list[Graph] = []
    chunked = ChunkedKernels()
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    batch = _fake(mode, batch_of_tokens(tokens))
    with ExitStack() as stack:
        stack.enter_context(mode)
        stack.enter_context(generated(gpu, ran.append, eager.pause))
        stack.enter_context(_AsCuda())
        stack.enter_context(mock.patch("bertbench.model.linear.widens", lambda device_type: True))
        stack.enter_context(mock.patch.object(torch.compiler, "is_compiling", lambda: True))  # turns off paths for CPUs
        runs = _Step(shape, batch, residual, chunked, precision).pieces()
        counted = {}
        for name in wanted:
            runs[name]()  # compiles
            ran.clear()
            eager.clear()
            chunked.clear()
            with eager:
                runs[name]()
            eager_bytes = eager.bytes + chunked.bytes
            counted[name] = Counted(
                runs=tuple(ran),
                eager=Counter(eager.launches),
                eager_bytes=eager_bytes,
                attention_bytes=eager.attention_bytes,
                chunked=Counter(chunked.launches),
            )
    if "layer" in counted:
        layer = counted["layer"]
        attention = counted["attention"]  # it runs outside compiled graphs
        counted["layer"] = layer._replace(
            eager=layer.eager - attention.eager,
            eager_bytes=layer.eager_bytes - attention.eager_bytes,
            attention_bytes=layer.attention_bytes - attention.attention_bytes,
        )
    return counted


class _Step:
    """A model, its optimizer and the pieces of one step."""

    def __init__(
        self,
        shape: BertShape,
        batch: Batch,
        residual: ResidualName,
        chunked: ChunkedKernels,
        precision: PrecisionName,
    ) -> None:
        self._model = Bert(shape, flash_attention)
        self._scaling: DelayedScaling | None = None
        if precision == "fp8":
            self._scaling = multiply_in_fp8(self._model, run_backward=lambda: None)
        self._model.keep_residual(residual)
        compile_pieces(self._model)
        self._model.hand_to_heads(_PRODUCTS)
        self._batch = batch
        self._parameters = list(self._model.parameters())
        self._buckets = Buckets(bucket_table(self._parameters[::-1], None)).all
        lamb, fused = OptimizerSettings(name="lamb", learning_rate=_RATE), self._model.fused_parameters()
        self._rounded: RoundedWeights | None = None
        if precision == "bf16":  # fp8's products round the fp32 weights themselves
            self._rounded = RoundedWeights(rounded_layers(self._model), _PRODUCTS)
        from bertbench.optim.triton_step import TritonNorm, TritonStep  # noqa: PLC0415 - Triton, which is optional

        self._norm = TritonNorm(self._parameters)
        self._chunked = chunked
        step = TritonStep()
        copies = self._rounded.copies if self._rounded else None
        self._optimizer = MultiTensorAdam(self._parameters, lamb, fused, step, step, rounded=copies)
        self._weights = ModelWeights(self._rounded, written_by_step=True)

    def pieces(self) -> dict[str, Callable[[], None]]:
        """Return, by name, a function that runs each piece once."""
        model, batch = self._model, self._batch
        width, count = model.shape.hidden_size, len(batch.tokens_T)
        read = len(batch.masked_at_M)
        stream = model.embeddings.residual_type
        first, second, *_ = model.encoder_layers()
        hidden_TD = torch.empty(count, width, dtype=stream, requires_grad=True)
        norm = first.feed_forward_norm
        given_TD = UnscaledStates(hidden_TD, norm.weight.detach(), norm.bias.detach())
        heads, dropout = model.shape.attention_heads, model.shape.attention_dropout
        qkv_T3HK = torch.empty(count, 3, heads, width // heads, dtype=_PRODUCTS, requires_grad=True)
        context_TD = torch.empty(count, width, dtype=_PRODUCTS, requires_grad=True)
        masked_MD = torch.empty(read, width, dtype=_PRODUCTS, requires_grad=True)
        first_SD = torch.empty(len(batch.next_sentence_S), width, dtype=_PRODUCTS, requires_grad=True)

        def layer() -> tuple[Tensor, Tensor]:
            """Return the second layer's attention and input."""
            assert model.between is not None, "compiled"
            input_TD, qkv_T3D = model.between(first, second, context_TD, given_TD)
            return second.attend(qkv_T3D, batch.sequences), input_TD

        states = ReadStates(masked_MD, first_SD, model.embeddings.word.weight)
        return {
            "embeddings": lambda: self._both_ways(
                lambda: model.embeddings(batch.tokens_T, batch.segments_T, batch.positions_T)
            ),
            "attention": lambda: self._both_ways(lambda: flash_attention(qkv_T3HK, batch.sequences, dropout), qkv_T3HK),
            "layer": lambda: self._both_ways(layer, context_TD, hidden_TD),
            "head_and_loss": lambda: self._both_ways(
                lambda: self._loss(model.head_losses(states, batch.labels)),
                masked_MD,
                first_SD,
            ),
            "optimizer": self._update,
            "step": self._step,
        }

    def _both_ways(self, forward: Callable[[], Any], *inputs: Tensor) -> None:
        """Run a piece forward and backward, beginning without gradients."""
        for tensor in (*self._parameters, *inputs):
            tensor.grad = None
        with torch.autocast("cpu", _PRODUCTS):
            result = forward()
        outputs = result if isinstance(result, tuple) else (result,)
        torch.autograd.backward(outputs, [torch.empty_like(output) for output in outputs])

    def _loss(self, sums: LossSums) -> Tensor:
        return sums.weighted(_WEIGHTS, _WEIGHTS)

    def _update(self) -> None:
        """Clip and update, as the trainer does."""
        for parameter in self._parameters:
            if parameter.grad is None:
                parameter.grad = torch.empty_like(parameter)
        with self._chunked.counted():
            self._optimizer.step(_RATE, after_coefficient(self._norm(), 1.0))
            self._weights.publish()

    def _step(self) -> None:
        """Run the model forward and backward, update, and zero the gradients."""
        batch = self._batch
        with torch.autocast("cpu", _PRODUCTS):
            sums = self._model.loss_sums(batch.inputs, batch.labels)
        self._loss(sums).backward()
        for bucket in self._buckets:
            bucket.take_in()
        self._update()
        if self._scaling is not None:
            self._scaling.advance(lambda amax_K: amax_K)  # there are no other ranks to combine with
        self._model.zero_grad(set_to_none=True)


class _AsCuda(TorchFunctionMode):
    """Computes in fp32 the operations that autocast keeps in fp32 only on CUDA (torch.amp's op reference)."""

    def __torch_function__(
        self, function: Any, types: Any, arguments: Sequence[Any] = (), options: dict[str, Any] | None = None
    ) -> Any:
        if function is functional.layer_norm:
            arguments = (arguments[0].float(), *arguments[1:])
        return function(*arguments, **(options or {}))


def _fake(mode: FakeTensorMode, batch: Batch) -> Batch:
    sequences = replace(batch.sequences, cu_seqlens_S1=mode.from_tensor(batch.sequences.cu_seqlens_S1))
    tensors = {name: mode.from_tensor(value) for name, value in vars(batch).items() if name != "sequences"}
    return Batch(sequences=sequences, **tensors)
