"""A forward pass on fake tensors of a GPU, which a build of torch for CUDA can make on a machine without one."""

from functools import partial

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from bertbench.loading.batch import synthetic
from bertbench.model import fp8_feed_forward, fp8_linear
from bertbench.model.attention import flash_attention
from bertbench.model.bert import Bert
from bertbench.model.fp8_feed_forward import feed_forward
from bertbench.model.fp8_linear import Fp8Linear
from bertbench.model.fp8_scaling import DelayedScaling
from bertbench.model.linear import Linear, weight_gradient
from bertbench.model.loss import LossSums
from bertbench.model.shape import BertShape

pytestmark = pytest.mark.skipif(
    torch.version.cuda is None or torch.cuda.is_available(), reason="needs torch for CUDA, without a GPU"
)
SHAPE = BertShape(vocab_size=61, hidden_size=48, layers=2, attention_heads=3, feed_forward_size=80, max_positions=32)
CUDA = torch.device("cuda")


def test_the_model_and_its_loss_stay_on_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tensor, "pin_memory", lambda tensor: tensor)  # fake tensors have none
    monkeypatch.setattr(torch.cuda.amp.common, "amp_definitely_not_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)
    batch = synthetic(3, 11, SHAPE.vocab_size, torch.Generator().manual_seed(1))
    with FakeTensorMode(allow_non_fake_inputs=True), CUDA:
        model, there = Bert(SHAPE, flash_attention), batch.to(CUDA)
        with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
            scores = model(there.inputs)
            loss = LossSums.of(scores, there.labels).weighted(0.5, 0.25)
    assert (scores.masked_lm_MV.device.type, scores.masked_lm_MV.dtype) == ("cuda", torch.bfloat16)
    assert scores.masked_lm_MV.shape == (len(batch.masked_at_M), SHAPE.vocab_size)
    assert (loss.device.type, loss.dtype) == ("cuda", torch.float32)


def test_a_weight_s_gradient_is_a_product_that_writes_float32() -> None:
    with FakeTensorMode(), CUDA:
        gradient_NO, input_NI = torch.empty(7, 5).bfloat16(), torch.empty(7, 3).bfloat16()
        found = weight_gradient(gradient_NO, input_NI, torch.float32)
    assert (found.shape, found.dtype) == ((5, 3), torch.float32)


class Kept:
    """What a Function keeps for its backward pass: autograd's engine itself would look for the absent GPU."""

    saved_tensors: tuple[Tensor, ...]

    def save_for_backward(self, *tensors: Tensor) -> None:
        self.saved_tensors = tensors


def layer_on_gpu(inputs: int, outputs: int) -> Fp8Linear:
    return Fp8Linear(Linear(inputs, outputs), DelayedScaling(1, CUDA).layers[0])


def test_products_in_fp8_have_the_layout_that_a_gpu_wants(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept()
    function = fp8_linear._Product
    monkeypatch.setattr(function, "apply", partial(function.forward, kept))
    with FakeTensorMode(), CUDA, torch.no_grad():
        output = layer_on_gpu(32, 48)(torch.empty(7, 32).bfloat16())
        to_input, to_weight, _, _, to_bias, *_ = function.backward(kept, torch.empty_like(output))
    assert (output.shape, output.dtype) == ((7, 48), torch.bfloat16)
    assert (to_input.shape, to_input.dtype, to_input.device.type) == ((7, 32), torch.bfloat16, "cuda")
    assert (to_weight.shape, to_weight.dtype) == ((48, 32), torch.float32)
    assert (to_bias.shape, to_bias.dtype) == ((48,), torch.float32)


def test_feed_forward_products_in_fp8_have_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept()
    function = fp8_feed_forward._FeedForward
    monkeypatch.setattr(function, "apply", partial(function.forward, kept))
    with FakeTensorMode(), CUDA, torch.no_grad():
        output = feed_forward(layer_on_gpu(32, 48), layer_on_gpu(48, 32), torch.empty(7, 32).bfloat16())
        gradients = function.backward(kept, torch.empty_like(output))
    to_hidden, to_first, _, _, to_bias, to_second, *_ = gradients
    assert (output.shape, output.dtype) == ((7, 32), torch.bfloat16)
    assert (to_hidden.shape, to_hidden.dtype, to_hidden.device.type) == ((7, 32), torch.bfloat16, "cuda")
    assert (to_first.shape, to_bias.shape, to_second.shape) == ((48, 32), (48,), (32, 48))
    assert {to_first.dtype, to_bias.dtype, to_second.dtype} == {torch.float32}
