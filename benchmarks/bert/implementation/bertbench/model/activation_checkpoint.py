"""Activation recomputation: keep the input of every layer, compute the layer again when its gradient is due.

Chen et al. 2016 (arXiv 1604.06174): activations of one layer at a time, for a third more work.
"""

from collections.abc import Iterable
from functools import partial

from torch import nn
from torch.utils.checkpoint import checkpoint


def recompute(layers: Iterable[nn.Module]) -> None:
    """Let the layers keep their inputs only; names of parameters stay."""
    for layer in layers:
        layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)
