"""Read and write Hugging Face's BertForPreTraining: a folder with config.json and model.safetensors."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from bertbench.common.atomic import new_folder
from bertbench.common.errors import CheckpointError
from bertbench.weights.bert_config import HUGGING_FACE_ACTIVATION, hugging_face_config, read_bert_config
from bertbench.weights.file import Weights
from bertbench.weights.names import Piece, pieces, take_apart
from bertbench.weights.origin import Origin
from bertbench.weights.output import save_tensors, writing

_CONFIG, _TENSORS = "config.json", "model.safetensors"
_WORDS, _OUTPUT_BIAS = "bert.embeddings.word_embeddings.weight", "cls.predictions.bias"
_TIED = {"cls.predictions.decoder.weight": _WORDS, "cls.predictions.decoder.bias": _OUTPUT_BIAS}


def open_hugging_face(folder: Path) -> Origin:
    """Open the model in `folder`; half-precision weights become fp32, exactly.

    Raises CheckpointError if a file can't be read, or if the output matrix is not tied to the word embeddings.
    """
    shape, activation = read_bert_config(folder / _CONFIG)
    path = folder / _TENSORS
    try:
        file = safe_open(path, framework="pt")
        # files made before 2019 have the old names of LayerNorm's parameters
        keys = {
            name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias"): name
            for name in file.keys()  # noqa: SIM118 - not a dict
        }
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            f"{path}: cannot be read ({error}); save the model with save_pretrained(DIR), which writes it"
        ) from error
    for copy, original in _TIED.items():
        if copy in keys and original in keys and not torch.equal(*(file.get_tensor(keys[n]) for n in (copy, original))):
            raise CheckpointError(
                f"{path}: {copy}: differs from {original}, expected the same; "
                "this model has one matrix for both; tie them before saving"
            )
    notes = (
        ()
        if activation == HUGGING_FACE_ACTIVATION
        else (f"{folder / _CONFIG}: hidden_act is {activation}; this model computes {HUGGING_FACE_ACTIVATION}",)
    )
    return Origin(
        path=path,
        source=f"Hugging Face model {folder.resolve().name}",
        shape=shape,
        needed={piece.hugging_face: piece for piece in pieces(shape)},
        keys=keys,
        notes=notes,
        read=partial(_read, path, file, keys),
    )


def export(weights: Weights, folder: Path) -> None:
    """Write config.json and model.safetensors, the vocabulary without padding, into a new folder.

    Raises CheckpointError if the folder exists or can't be written.
    """
    shape = replace(weights.shape, vocab_size=weights.real_vocab_size)
    taken = take_apart(pieces(shape), weights.read())
    with writing(folder, new_folder) as unfinished:
        text = json.dumps(hugging_face_config(shape), indent=2) + "\n"
        (unfinished / _CONFIG).write_text(text, encoding="utf-8")
        tensors = {piece.hugging_face: tensor for piece, tensor in taken.items()}
        save_tensors(tensors, unfinished / _TENSORS, {"format": "pt"})  # transformers requires this word


def _read(path: Path, file: Any, keys: dict[str, str], piece: Piece) -> Tensor:
    key = keys[piece.hugging_face]
    tensor: Tensor = file.get_tensor(key)
    if not tensor.is_floating_point():
        raise CheckpointError(f"{path}: {key}: found {tensor.dtype}, expected a float; save the model in float32")
    if tuple(tensor.shape) != piece.shape:
        raise CheckpointError(
            f"{path}: {key}: found shape {tuple(tensor.shape)}, expected {piece.shape}; "
            f"give the {_CONFIG} that belongs to the model"
        )
    return tensor.float()
