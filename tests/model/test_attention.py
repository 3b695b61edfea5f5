"""Attention against padded SDPA in float64, within the error that its own sums and roundings allow."""

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import varlen

from bertbench.model.attention import cpu_attention, flash_attention, flash_takes, kernel_for, plain_attention
from bertbench.model.sequences import Sequences
from tests.model.padded import attention_errors

LENGTHS = [23, 17, 17, 11, 3]
TORCH = tuple(map(int, torch.__version__.split(".")[:2]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_attention_equals_padded_attention_except_for_rounding(dtype: torch.dtype) -> None:
    assert all(share <= 1 for _, share in attention_errors(torch.device("cpu"), dtype, LENGTHS, heads=3, width=8))


def test_the_flash_kernel_is_for_half_precision_on_gpus() -> None:
    cpu = torch.device("cpu")
    assert kernel_for(cpu, torch.bfloat16, 64) is cpu_attention
    assert flash_takes(torch.bfloat16, 64)
    assert not flash_takes(torch.float32, 64)
    assert not flash_takes(torch.float16, 7)


def test_the_flash_operator_has_the_arguments_that_we_give_it_and_a_gradient() -> None:
    with FakeTensorMode(allow_non_fake_inputs=True):
        qkv = torch.empty(71, 3, 3, 8, dtype=torch.bfloat16, requires_grad=True)
        context = flash_attention(qkv, Sequences.of(np.array(LENGTHS)), 0.1)
        context.sum().backward()
    assert context.shape == (71, 3, 8)
    assert qkv.grad is not None
    assert qkv.grad.shape == qkv.shape


def test_hopper_and_blackwell_get_the_flash_kernel_whether_or_not_torch_uses_cudnn_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: 92400)
    for major in (9, 10):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _=None, major=major: (major, 0))
        varlen._should_use_cudnn.cache_clear()
        # up to 2.13 torch kept cuDNN's varlen kernel off: its backward pass wrote past its memory
        assert varlen._should_use_cudnn(0) == (TORCH >= (2, 14))
        assert kernel_for(torch.device("cuda"), torch.bfloat16, 64) is flash_attention
        assert kernel_for(torch.device("cuda"), torch.float32, 64) is plain_attention
    varlen._should_use_cudnn.cache_clear()
