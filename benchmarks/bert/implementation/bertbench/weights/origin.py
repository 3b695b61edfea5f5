"""What an import reads from, whatever the format: which tensors it uses, and how one of them is read."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from bertbench.model.shape import BertShape
from bertbench.weights.names import Piece


@dataclass(frozen=True)
class Origin:
    """A checkpoint of another program, matched with our model and not yet read."""

    path: Path
    """The file or folder."""
    source: str
    """What it is, as the weights file will say: no path, which means nothing on another machine."""
    shape: BertShape
    """Sizes; vocab_size is the real vocabulary."""
    used: dict[str, str]
    """Its tensors that become ours: name there -> parameter here."""
    skipped: dict[str, str]
    """Its other tensors: name -> reason."""
    missing: tuple[str, ...]
    """Tensors that the model needs and the checkpoint lacks, as the checkpoint would name them."""
    notes: tuple[str, ...]
    """What a person should know about it."""
    read: Callable[[Piece], torch.Tensor]
    """One tensor as we have it, fp32; raises CheckpointError if it is damaged or of another shape."""
