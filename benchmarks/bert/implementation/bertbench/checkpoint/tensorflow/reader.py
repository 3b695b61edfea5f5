"""Match a TensorFlow checkpoint with our model: select its variables and convert them."""

from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertbench.checkpoint.bert_config import read_bert_config
from bertbench.checkpoint.conversion import Origin
from bertbench.checkpoint.tensor_names import Piece, pieces
from bertbench.checkpoint.tensorflow.object_names import OBJECT_GRAPH, VALUE_SUFFIX, own_names, variable_name
from bertbench.checkpoint.tensorflow.tensorbundle import Bundle
from bertbench.common.errors import CheckpointError
from bertbench.model.shape import BertShape


def open_tensorflow(prefix: Path, config: Path) -> Origin:
    """Open the checkpoint `prefix` (a path without .index) of the model in bert_config.json.

    Raises CheckpointError if a file can't be read or is damaged, or if two tensors claim one name.
    """
    shape, _ = read_bert_config(config)  # google-research/bert calls its tanh approximation gelu
    bundle = Bundle.open(prefix)
    by_objects = any(key.endswith(VALUE_SUFFIX) for key in bundle.entries)
    names = _object_based(bundle, shape.layers) if by_objects else {}
    keys: dict[str, str] = {}
    for key in sorted(bundle.entries):
        name = names.get(key, key)
        if keys.setdefault(name, key) != key:
            raise CheckpointError(
                f"{prefix}: {keys[name]} and {key} are both {name}; the checkpoint holds more than one model; "
                "save one model only"
            )
    return Origin(
        path=prefix,
        source=f"TensorFlow {2 if by_objects else 1} checkpoint {prefix.name}",
        shape=shape,
        needed={piece.tensorflow: piece for piece in pieces(shape)},
        keys=keys,
        notes=(),
        read=partial(_read, bundle, keys, shape, by_objects),
    )


def _object_based(bundle: Bundle, layers: int) -> dict[str, str]:
    """Return TensorFlow 1's names by key, for the keys that have one; optimizer slots have none."""
    variable_names: dict[str, str] = {}
    if OBJECT_GRAPH in bundle.entries:
        try:
            variable_names = own_names(bundle.read_text(OBJECT_GRAPH))
        except ValueError as error:
            raise CheckpointError(
                f"{bundle.prefix}: {OBJECT_GRAPH}: is damaged ({error}); copy the checkpoint again"
            ) from error
    names = {
        key: variable_name(key, variable_names.get(key), layers)
        for key in bundle.entries
        if key.endswith(VALUE_SUFFIX) and not key.startswith("optimizer/") and "/.OPTIMIZER_SLOT/" not in key
    }
    return {key: name for key, name in names.items() if name is not None}


def _read(bundle: Bundle, keys: dict[str, str], shape: BertShape, by_objects: bool, piece: Piece) -> Tensor:
    key = keys[piece.tensorflow]
    array = bundle.read(key)
    # TensorFlow 2 stores this matrix as a dense layer's; TensorFlow 1 stores it as we do.
    transposed = piece.transposed or (by_objects and piece.tensorflow.endswith("/output_weights"))
    stored = piece.shape[::-1] if transposed else piece.shape
    if array.shape != stored and array.shape not in _by_head(piece, shape):
        raise CheckpointError(
            f"{bundle.prefix}: {key}: found shape {array.shape}, expected {stored}; "
            "give the bert_config.json that belongs to the checkpoint"
        )
    flat: NDArray[np.float32] = array.reshape(stored)
    return torch.from_numpy(np.array(flat.T if transposed else flat, order="C"))


def _by_head(piece: Piece, shape: BertShape) -> tuple[tuple[int, ...], ...]:
    """Return the shapes of an attention tensor in TensorFlow 2, which gives heads their own dimension."""
    heads, width = shape.attention_heads, shape.hidden_size // shape.attention_heads
    if "/attention/self/" in piece.tensorflow:
        return ((shape.hidden_size, heads, width),) if piece.transposed else ((heads, width),)
    if piece.tensorflow.endswith("/attention/output/dense/kernel"):
        return ((heads, width, shape.hidden_size),)
    return ()
