"""Describe an import's source in any format: the tensors it uses, and a function to read one."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from bertbench.model.shape import BertShape
from bertbench.weights.names import Piece

SKIPPED = "not a tensor of BERT for pre-training"


@dataclass(frozen=True)
class Origin:
    """A checkpoint of another program, matched with our model but not read yet."""

    path: Path
    """The file or folder."""
    source: str
    """Its description in the weights file, without a path, which would be meaningless on another machine."""
    shape: BertShape
    """Sizes; vocab_size is the real vocabulary."""
    used: dict[str, str]
    """Its tensors that become ours: name there -> parameter here."""
    skipped: dict[str, str]
    """Its other tensors: name -> reason."""
    missing: tuple[str, ...]
    """Tensors that the model needs and the checkpoint lacks, under the checkpoint's names."""
    notes: tuple[str, ...]
    """Remarks for the user."""
    read: Callable[[Piece], torch.Tensor]
    """Return one tensor in our layout, fp32; raises CheckpointError if it is damaged or has another shape."""
