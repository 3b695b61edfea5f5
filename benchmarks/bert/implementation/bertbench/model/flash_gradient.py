"""Compute the gradients of query, key and value by torch's flash kernel, each in its slice of one tensor.

torch's operator returns three tensors, and the gradient of unpacking would stack them: 302 MB a layer at 24,576 tokens
of BERT-Large. The kernel writes to any strides, but the operator has no argument for its memory. It allocates by
torch's `empty_like`, which a dispatch mode answers here with a slice of the result. A device on which that doesn't
work, or not give the same numbers, stacks.
Shapes: T tokens, S sequences, H heads, K width of a head.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


@torch.library.custom_op("bertbench::flash_gradient", mutates_args=())
def flash_gradient(
    gradient_THK: Tensor,
    qkv_T3HK: Tensor,
    context_THK: Tensor,
    logsumexp_HT: Tensor,
    ends_S1: Tensor,
    longest: int,
    dropout: float,
    rng_state: Tensor,
    unused: Tensor,
) -> Tensor:
    """Return the gradient of query, key and value [T, 3, H, K]; all but `gradient_THK` are the forward pass's."""
    kept = (context_THK, logsumexp_HT, ends_S1, ends_S1, longest, longest, dropout, False, rng_state, unused)
    by_slices = writes_into_slices(qkv_T3HK.device)
    return _gradient(gradient_THK.contiguous(), qkv_T3HK, kept, by_slices)


@flash_gradient.register_fake
def _described(gradient_THK: Tensor, qkv_T3HK: Tensor, *_: Any) -> Tensor:
    del gradient_THK
    return qkv_T3HK.new_empty(qkv_T3HK.shape)


@cache
def writes_into_slices(device: torch.device) -> bool:
    """Return whether torch's operator fills slices on this device, tried on two sequences of 5 and 11 tokens."""
    qkv_T3HK = torch.linspace(-1, 1, 16 * 3 * 64, device=device).sin().view(16, 3, 1, 64).bfloat16()
    ends_S1 = torch.tensor([0, 5, 16], dtype=torch.int32, device=device)
    try:
        query_THK, key_THK, value_THK = qkv_T3HK.unbind(1)
        context_THK, logsumexp_HT, rng_state, unused, _ = torch.ops.aten._flash_attention_forward(
            query_THK, key_THK, value_THK, ends_S1, ends_S1, 11, 11, 0.0, False, False
        )
        kept = (context_THK, logsumexp_HT, ends_S1, ends_S1, 11, 11, 0.0, False, rng_state, unused)
        in_slices = _gradient(qkv_T3HK[:, 0].contiguous(), qkv_T3HK, kept, by_slices=True)
        stacked = _gradient(qkv_T3HK[:, 0].contiguous(), qkv_T3HK, kept, by_slices=False)
    except RuntimeError:
        return False
    # the kernel adds up queries' gradients in any order, in float32
    return torch.allclose(in_slices.float(), stacked.float(), rtol=2**-7, atol=1e-4)


def _gradient(gradient_THK: Tensor, qkv_T3HK: Tensor, kept: tuple[Any, ...], by_slices: bool) -> Tensor:
    operator = torch.ops.aten._flash_attention_backward.default
    parts = qkv_T3HK.unbind(1)
    if not by_slices:
        return torch.stack(operator(gradient_THK, *parts, *kept), 1)
    result_T3HK = qkv_T3HK.new_empty(qkv_T3HK.shape)
    slices = result_T3HK.unbind(1)
    key = getattr(torch._C.DispatchKey, qkv_T3HK.device.type.upper())
    with _AllocatedFrom(slices, parts):
        # straight to the device's kernel: the mode is for what that calls
        gradients = operator.redispatch(torch._C.DispatchKeySet(key), gradient_THK, *parts, *kept)
    if all(gradient.data_ptr() == memory.data_ptr() for gradient, memory in zip(gradients, slices, strict=True)):
        return result_T3HK
    return torch.stack(gradients, 1)


class _AllocatedFrom(TorchDispatchMode):
    """Answer `empty_like` of some tensors with given memory, once each."""

    def __init__(self, memory: Sequence[Tensor], like: Sequence[Tensor]) -> None:
        super().__init__()
        self._memory = {tensor.data_ptr(): answer for tensor, answer in zip(like, memory, strict=True)}

    def __torch_dispatch__(
        self, function: Any, types: Any, arguments: Sequence[Any] = (), options: dict[str, Any] | None = None
    ) -> Any:
        options = options or {}
        if function is torch.ops.aten.empty_like.default and not any(options.values()):
            answer = self._memory.pop(arguments[0].data_ptr(), None)
            if answer is not None:
                return answer
        return function(*arguments, **options)
