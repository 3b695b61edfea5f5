"""Provide torch's collectives on flat tensors, whatever this version of torch calls them."""

from collections.abc import Callable
from typing import Any

from torch import distributed

_RENAMED = hasattr(distributed, "reduce_scatter_single")
"""torch 2.13 renames both collectives and warns about the old names, which a later version may remove."""
reduce_scatter: Callable[..., Any] = (
    distributed.reduce_scatter_single if _RENAMED else distributed.reduce_scatter_tensor
)
all_gather: Callable[..., Any] = distributed.all_gather_single if _RENAMED else distributed.all_gather_into_tensor
"""Both take (output, input, group=, async_op=), flat tensors that may share memory, so nothing is copied."""
