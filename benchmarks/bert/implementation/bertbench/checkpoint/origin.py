"""Describe an import's source in any format: the tensors it uses, and a function to read one."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from bertbench.checkpoint.tensor_names import Piece
from bertbench.model.shape import BertShape


@dataclass(frozen=True)
class Origin:
    """A checkpoint of another program, matched with our model but not read yet."""

    path: Path
    """The file or folder."""
    source: str
    """Its description in the weights file, without a path, which would be meaningless on another machine."""
    shape: BertShape
    """Sizes; vocab_size is the real vocabulary."""
    needed: dict[str, Piece]
    """What the model needs, by its name in such checkpoints."""
    keys: dict[str, str]
    """Its tensors: such a name, or another -> name in this file."""
    notes: tuple[str, ...]
    """Remarks for the user."""
    read: Callable[[Piece], Tensor]
    """Return one tensor in our layout, fp32; raises CheckpointError if it is damaged or has another shape."""

    @property
    def used(self) -> dict[str, str]:
        """Return its tensors that become ours: name there -> parameter here."""
        return {key: self.needed[name].parameter for name, key in self.keys.items() if name in self.needed}

    @property
    def skipped(self) -> list[str]:
        """Return its other tensors."""
        return [key for name, key in self.keys.items() if name not in self.needed]

    @property
    def missing(self) -> list[str]:
        """Return what the model needs and the checkpoint lacks."""
        return [name for name in self.needed if name not in self.keys]
