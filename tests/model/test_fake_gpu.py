"""A forward pass on fake tensors of a GPU, which a build of torch for CUDA can make on a machine without one."""

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from bertbench.loading.batch import synthetic
from bertbench.model.attention import flash_attention
from bertbench.model.bert import Bert
from bertbench.model.linear import weight_gradient
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
            scores = model(*there.inputs)
            loss = LossSums.of(scores, there.labels).weighted(0.5, 0.25)
    assert (scores.masked_lm_MV.device.type, scores.masked_lm_MV.dtype) == ("cuda", torch.bfloat16)
    assert scores.masked_lm_MV.shape == (len(batch.masked_at_M), SHAPE.vocab_size)
    assert (loss.device.type, loss.dtype) == ("cuda", torch.float32)


def test_a_weight_s_gradient_is_a_product_that_writes_float32() -> None:
    with FakeTensorMode(), CUDA:
        gradient_NO, input_NI = torch.empty(7, 5).bfloat16(), torch.empty(7, 3).bfloat16()
        found = weight_gradient(gradient_NO, input_NI, torch.float32)
    assert (found.shape, found.dtype) == ((5, 3), torch.float32)
