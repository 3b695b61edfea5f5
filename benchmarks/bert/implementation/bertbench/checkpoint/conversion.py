"""Convert an opened checkpoint of another program to our weights file."""

from dataclasses import replace
from pathlib import Path

from bertbench.checkpoint.origin import Origin
from bertbench.checkpoint.output import check_new
from bertbench.checkpoint.tensor_names import assemble
from bertbench.checkpoint.weights_file import write_weights
from bertbench.common.errors import CheckpointError

_MULTIPLE = 8  # rows for fast tensor cores: 30,522 becomes 30,528
_SHOWN = 5


def padded_vocabulary(real: int, wanted: int | None) -> int:
    """Return the rows for `real` entries: `wanted`, else the next multiple of 8.

    Raises CheckpointError if `wanted` is too few.
    """
    if wanted is None:
        return -(-real // _MULTIPLE) * _MULTIPLE
    if wanted < real:
        raise CheckpointError(
            f"--vocab-size {wanted:,}: the checkpoint's vocabulary has {real:,} entries; give at least as many"
        )
    return wanted


def convert(origin: Origin, out: Path, rows: int) -> None:
    """Read every tensor, join them, pad the vocabulary to `rows`, and write them to a new file.

    Raises CheckpointError if a tensor is missing, damaged or of another shape, or if `out` can't be written.
    """
    check_new(out)
    if missing := origin.missing:
        names = ", ".join(missing[:_SHOWN]) + (", ..." if len(missing) > _SHOWN else "")
        raise CheckpointError(
            f"{origin.path}: lacks {len(missing)} of {len(origin.needed)} tensors: {names}; "
            "give a checkpoint of BERT with both pre-training heads, and the configuration that belongs to it"
        )
    tensors = assemble(origin.needed.values(), origin.read, rows)
    write_weights(out, tensors, replace(origin.shape, vocab_size=rows), origin.shape.vocab_size, origin.source)
