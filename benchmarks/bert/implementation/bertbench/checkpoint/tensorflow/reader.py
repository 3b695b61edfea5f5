"""Match a TensorFlow 1 checkpoint with our model: select its variables and convert them."""

from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertbench.checkpoint.bert_config import read_bert_config
from bertbench.checkpoint.conversion import Origin, padding_notes
from bertbench.checkpoint.tensor_names import Piece, pieces, without_padding
from bertbench.checkpoint.tensorflow.tensorbundle import Bundle
from bertbench.common.errors import CheckpointError

_WORDS = "bert/embeddings/word_embeddings"
_TENSORFLOW_2 = "/.ATTRIBUTES/VARIABLE_VALUE"
"""Ends each tensor's name in a checkpoint of TensorFlow 2."""


def open_tensorflow(prefix: Path, config: Path) -> Origin:
    """Open the checkpoint `prefix` (a path without .index) of the model in bert_config.json.

    Raises CheckpointError if a file can't be read or is damaged, or if TensorFlow 2 wrote the checkpoint.
    """
    shape, _ = read_bert_config(config)  # google-research/bert calls its tanh approximation gelu
    bundle = Bundle.open(prefix)
    if any(name.endswith(_TENSORFLOW_2) for name in bundle.entries):
        raise CheckpointError(
            f"{prefix}: is a TensorFlow 2 checkpoint, expected one of TensorFlow 1; MLCommons publishes both under one "
            "name: give the one in tf1_ckpt"
        )
    words = bundle.entries.get(_WORDS)
    return Origin(
        path=prefix,
        source=f"TensorFlow checkpoint {prefix.name}",
        shape=shape,
        needed={piece.tensorflow: piece for piece in pieces(shape)},
        keys={name: name for name in sorted(bundle.entries)},
        notes=padding_notes(_WORDS, words.shape[0], shape.vocab_size) if words and words.shape else (),
        read=partial(_read, bundle),
    )


def _read(bundle: Bundle, piece: Piece) -> Tensor:
    name = piece.tensorflow
    array = bundle.read(name)
    if array.ndim:
        array = array[without_padding(piece, array.shape)]
    stored = piece.shape[::-1] if piece.transposed else piece.shape
    if array.shape != stored:
        raise CheckpointError(
            f"{bundle.prefix}: {name}: found shape {array.shape}, expected {stored}; "
            "give the bert_config.json that belongs to the checkpoint"
        )
    ours: NDArray[np.float32] = array.T if piece.transposed else array
    return torch.from_numpy(np.array(ours, order="C"))
