"""Read and write Hugging Face's BertForPreTraining: a folder with config.json and model.safetensors, or its shards."""

import json
import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from bertbench.checkpoint.bert_config import HUGGING_FACE_ACTIVATION, hugging_face_config, read_bert_config
from bertbench.checkpoint.conversion import Origin, padding_notes
from bertbench.checkpoint.pickles import refuse_pickles
from bertbench.checkpoint.safetensors_files import TensorFiles, save_tensors, writing
from bertbench.checkpoint.tensor_names import Piece, has_padding, pieces, take_apart, without_padding
from bertbench.checkpoint.weights_file import Weights
from bertbench.common.atomic import new_folder
from bertbench.common.errors import CheckpointError
from bertbench.common.system_faults import exists

_CONFIG, _TENSORS = "config.json", "model.safetensors"
_TENSORS_END, _INDEX_END = ".safetensors", ".safetensors.index.json"
_SHARD = re.compile(r"-\d+-of-(\d+)\.safetensors$")
_SAVE = (
    f"load the model as transformers' BertForPreTraining and save it with save_pretrained(DIR): it writes {_TENSORS}"
)
_WRAPPERS = re.compile(r"^(?:module\.|_orig_mod\.)+")  # of DistributedDataParallel and torch.compile
_PARTS_OF_BERT = ("embeddings.", "encoder.", "pooler.")
_FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)  # an 8-bit float needs a scale
_WORDS, _OUTPUT_BIAS = "bert.embeddings.word_embeddings.weight", "cls.predictions.bias"
_TIED = {"cls.predictions.decoder.weight": _WORDS, "cls.predictions.decoder.bias": _OUTPUT_BIAS}


def open_hugging_face(place: Path) -> Origin:
    """Open a folder's model by the path of the folder or of a file in it; half precision becomes fp32, exactly.

    Raises CheckpointError if a file can't be read, or if the output matrix is not tied to the word embeddings.
    """
    if place.name == _CONFIG:
        place = place.parent
    is_file = place.name.endswith((_TENSORS_END, _INDEX_END)) or place.is_file()
    folder = place.parent if is_file else place
    if is_file or not any(folder.glob(f"*{_TENSORS_END}")):
        refuse_pickles(place, _SAVE)
    shape, activation = read_bert_config(folder / _CONFIG)
    path = place if is_file else _tensors_of(folder)
    _refuse_a_shard(path)
    files = TensorFiles.open(path, _SAVE)
    keys = _by_usual_name(files)
    for copy, original in _TIED.items():
        if copy not in keys:
            continue
        if original not in keys:  # the library stores one tensor under either of its two names
            keys[original] = keys.pop(copy)
        elif not _are_equal(_as_fp32(files, keys[copy]), _as_fp32(files, keys[original])):
            raise CheckpointError(
                f"{path}: {copy}: differs from {original}, expected the same; "
                "this model has one matrix for both; tie them before saving"
            )
    notes: tuple[str, ...] = ()
    if activation != HUGGING_FACE_ACTIVATION:
        notes += (f"{folder / _CONFIG}: hidden_act is {activation}; this model computes {HUGGING_FACE_ACTIVATION}",)
    if _WORDS in keys:
        notes += padding_notes(keys[_WORDS], files.rows(keys[_WORDS]), shape.vocab_size)
    return Origin(
        path=path,
        source=f"Hugging Face model {folder.resolve().name}",
        shape=shape,
        needed={piece.hugging_face: piece for piece in pieces(shape)},
        keys=keys,
        notes=notes,
        read=partial(_read, files, keys),
    )


def _are_equal(copy: Tensor, original: Tensor) -> bool:
    """Return whether two tensors are equal, apart from padding; NaN equals NaN, which the conversion refuses."""
    if copy.ndim != original.ndim:
        return False
    entries, rows = sorted((len(copy), len(original))) if copy.ndim else (0, 0)
    if has_padding(rows, entries):
        copy, original = copy[:entries], original[:entries]
    return torch.equal(copy.nan_to_num(), original.nan_to_num())


def _tensors_of(folder: Path) -> Path:
    """Return the file with a model's tensors, or the index of several files.

    Raises CheckpointError if the names are unusual.
    """
    for name in (_TENSORS, f"model{_INDEX_END}"):
        if exists(folder / name, CheckpointError):
            return folder / name
    others = sorted(path.name for path in folder.glob(f"*{_TENSORS_END}"))
    if others:
        raise CheckpointError(
            f"{folder}: found no {_TENSORS}, but {', '.join(others)}; give the path of the file that you mean"
        )
    return folder / _TENSORS  # opening it reports that it is missing


def _refuse_a_shard(path: Path) -> None:
    """Raise CheckpointError if a file has only a part of a model's tensors, by its name."""
    shard = _SHARD.search(path.name)
    if shard and int(shard[1]) > 1:
        raise CheckpointError(
            f"{path}: is one of a model's {int(shard[1])} files; give their folder, or their index (*{_INDEX_END})"
        )


def _by_usual_name(files: TensorFiles) -> dict[str, str]:
    """Return the tensors' names in the files by their current names in BertForPreTraining.

    Raises CheckpointError if two tensors have the same current name.
    """
    keys: dict[str, str] = {}
    for stored in files.file_of:
        name = _WRAPPERS.sub("", stored)
        if name.startswith(_PARTS_OF_BERT):  # saved from BertModel, which has no heads
            name = f"bert.{name}"
        # files made before 2019 have the old names of LayerNorm's parameters
        name = name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")
        if name in keys:
            raise CheckpointError(f"{files.path}: found {keys[name]} and {stored}, both for {name}; {_SAVE}")
        keys[name] = stored
    return keys


def export(weights: Weights, folder: Path) -> None:
    """Write config.json and model.safetensors, without the vocabulary's padding, into a new folder.

    Raises CheckpointError if the folder exists or can't be written.
    """
    shape = replace(weights.shape, vocab_size=weights.real_vocab_size)
    taken = take_apart(pieces(shape), weights.read())
    with writing(folder, new_folder) as unfinished:
        text = json.dumps(hugging_face_config(shape), indent=2) + "\n"
        (unfinished / _CONFIG).write_text(text, encoding="utf-8")
        tensors = {piece.hugging_face: tensor for piece, tensor in taken.items()}
        save_tensors(tensors, unfinished / _TENSORS, {"format": "pt"})  # transformers requires this word


def _read(files: TensorFiles, keys: dict[str, str], piece: Piece) -> Tensor:
    key = keys[piece.hugging_face]
    tensor = _as_fp32(files, key)
    if tensor.ndim:
        tensor = tensor[without_padding(piece, tuple(tensor.shape))]
    if tuple(tensor.shape) != piece.shape:
        raise CheckpointError(
            f"{files.path}: {key}: found shape {tuple(tensor.shape)}, expected {piece.shape}; "
            f"give the {_CONFIG} that belongs to the model"
        )
    return tensor


def _as_fp32(files: TensorFiles, key: str) -> Tensor:
    tensor = files.read(key)
    if tensor.dtype not in _FLOATS:
        raise CheckpointError(f"{files.path}: {key}: found {tensor.dtype}, expected a float; save the model in float32")
    return tensor.float()
