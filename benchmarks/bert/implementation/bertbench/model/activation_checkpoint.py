"""Recompute activations: keep only every layer's input, and run the layer again in the backward pass.

Chen et al. 2016 (arXiv 1604.06174): memory holds one layer's activations at a time, for a third more work.
"""

from collections.abc import Iterable
from functools import partial

from torch import nn
from torch.utils.checkpoint import checkpoint


def recompute(layers: Iterable[nn.Module]) -> None:
    """Make the layers keep only their inputs; parameter names stay."""
    for layer in layers:
        layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)
