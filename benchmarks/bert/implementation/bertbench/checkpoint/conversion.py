"""Describe a checkpoint of another program in any format, and convert it to our weights file."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor

from bertbench.checkpoint.safetensors_files import check_new
from bertbench.checkpoint.tensor_names import Piece, assemble, has_padding
from bertbench.checkpoint.weights_file import write_weights
from bertbench.common.errors import CheckpointError
from bertbench.model.shape import BertShape

_MULTIPLE = 8  # of vocabulary rows, for fast tensor cores: 30,522 rows become 30,528
_SHOWN = 8  # names of missing tensors; the two heads have 7


@dataclass(frozen=True)
class Origin:
    """A checkpoint of another program, matched with our model but not read yet."""

    path: Path
    """The file or folder."""
    source: str
    """Its description in the weights file, without a path, which would be meaningless on another machine."""
    shape: BertShape
    """The model's sizes; vocab_size is the size of the real vocabulary, without padding."""
    needed: dict[str, Piece]
    """The tensors that the model needs, by their usual names in such checkpoints."""
    keys: dict[str, str]
    """The names of this file's tensors, by the usual name if a tensor has one, else by its own."""
    notes: tuple[str, ...]
    """Remarks for the user."""
    read: Callable[[Piece], Tensor]
    """Return one tensor in our layout, fp32; raises CheckpointError if it is damaged or has another shape."""

    @property
    def used(self) -> dict[str, str]:
        """Return the tensors that the model needs: name in this file -> our parameter."""
        return {key: self.needed[name].parameter for name, key in self.keys.items() if name in self.needed}

    @property
    def skipped(self) -> list[str]:
        """Return the names of the tensors that the model doesn't need."""
        return [key for name, key in self.keys.items() if name not in self.needed]

    @property
    def missing(self) -> list[str]:
        """Return the usual names of the tensors that the model needs and the checkpoint lacks."""
        return [name for name in self.needed if name not in self.keys]


def padding_notes(name: str, rows: int, entries: int) -> tuple[str, ...]:
    """Return a remark if a tensor with `rows` rows is padded above the `entries` of the configured vocabulary."""
    if not has_padding(rows, entries):
        return ()
    return (
        f"{name} has {rows:,} rows, but vocab_size is {entries:,}; the last {rows - entries:,} rows are taken for "
        "padding and left out",
    )


def padded_vocabulary(real: int, wanted: int | None) -> int:
    """Return the number of rows for a vocabulary of `real` entries: `wanted`, or else the next multiple of 8.

    Raises CheckpointError if `wanted` is less than `real`.
    """
    if wanted is None:
        return -(-real // _MULTIPLE) * _MULTIPLE
    if wanted < real:
        raise CheckpointError(
            f"--vocab-size {wanted:,}: the checkpoint's vocabulary has {real:,} entries; give at least as many"
        )
    return wanted


def convert_checkpoint(origin: Origin, out: Path, rows: int) -> None:
    """Read every tensor, join them, pad the vocabulary to `rows`, and write them to a new file.

    Raises CheckpointError if a tensor is missing, damaged, of another shape or not finite, or if `out` can't be
    written.
    """
    check_new(out)
    if missing := origin.missing:
        names = ", ".join(missing[:_SHOWN]) + (", ..." if len(missing) > _SHOWN else "")
        raise CheckpointError(
            f"{origin.path}: lacks {len(missing)} of {len(origin.needed)} tensors: {names}; "
            "give a checkpoint of BERT with both pre-training heads, and the configuration that belongs to it"
        )
    name_of = {piece: origin.keys[name] for name, piece in origin.needed.items()}
    tensors = assemble(name_of, lambda piece: _finite(origin.path, name_of[piece], origin.read(piece)), rows)
    write_weights(out, tensors, replace(origin.shape, vocab_size=rows), origin.shape.vocab_size, origin.source)


def _finite(path: Path, name: str, tensor: Tensor) -> Tensor:
    """Return the tensor. Raises CheckpointError if values of it are NaN or infinite, as after a run that diverged."""
    wrong = tensor.numel() - int(tensor.isfinite().sum())
    if wrong:
        raise CheckpointError(
            f"{path}: {name}: {wrong:,} of {tensor.numel():,} values are NaN or infinite, expected numbers; "
            "give a checkpoint that was saved before the training diverged"
        )
    return tensor
