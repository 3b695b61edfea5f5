"""Compute on a CPU by the code that a GPU runs: attention of fixed size, and none of the CPU's own operations."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor, distributed
from torch.utils._python_dispatch import _disable_current_modes

from bertbench.gradients import exchange
from bertbench.model import attention
from bertbench.model.sequences import Sequences


def dense_attention(qkv_T3HK: Tensor, sequences: Sequences, dropout: float) -> Tensor:
    """Compute like a kernel of fixed size, which reads from the device where sequences end."""
    assert dropout == 0
    query_HTK, key_HTK, value_HTK = qkv_T3HK.permute(1, 2, 0, 3)
    count = len(qkv_T3HK)
    owner_T = torch.searchsorted(sequences.cu_seqlens_S1, torch.arange(count, dtype=torch.int32), right=True)
    scores_HTT = query_HTK @ key_HTK.transpose(1, 2) / query_HTK.shape[-1] ** 0.5
    scores_HTT = scores_HTT.masked_fill(owner_T[:, None] != owner_T, -torch.inf)
    return (scores_HTT.softmax(-1) @ value_HTK).transpose(0, 1)


@contextmanager
def as_on_a_gpu() -> Iterator[None]:
    """In the body, attention of fixed size, none of the CPU's own operations, nothing compiled."""
    with (
        mock.patch.object(attention, "kernel_for", lambda *_: dense_attention),
        mock.patch.object(torch.compiler, "is_compiling", lambda: True),
        mock.patch.object(torch, "compile", lambda function, **_: function),
        mock.patch.object(distributed, "all_reduce", unseen(distributed.all_reduce)),
        mock.patch.object(exchange, "reduce_scatter", unseen(exchange.reduce_scatter)),
        mock.patch.object(exchange, "all_gather", unseen(exchange.all_gather)),
    ):
        yield


class UnseenWait:
    """Wait as for NCCL, whose kernels write where they shall; gloo's wait copies from memory of its own."""

    def __init__(self, work: distributed.Work) -> None:
        self._work = work

    def wait(self) -> None:
        with _disable_current_modes():
            self._work.wait()


def unseen(collective: Callable[..., Any]) -> Callable[..., Any]:
    """Return a collective whose wait, if it has one, watches of operations don't see."""

    def start(*arguments: Any, **options: Any) -> UnseenWait | None:
        work = collective(*arguments, **options)
        return None if work is None else UnseenWait(work)

    return start
