"""Read bert_config.json, or a Hugging Face config.json: the sizes of a checkpoint's model."""

from pathlib import Path
from typing import Any

from bertbench.common.errors import CheckpointError
from bertbench.common.json_object import read_object
from bertbench.model.shape import BertShape

SIZES = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "num_hidden_layers": "layers",
    "num_attention_heads": "attention_heads",
    "intermediate_size": "feed_forward_size",
    "max_position_embeddings": "max_positions",
    "type_vocab_size": "token_types",
}
"""Sizes that weights depend on, under the names of the file and of BertShape; dropout, for instance, may differ."""
_RATES = {
    "hidden_dropout_prob": "hidden_dropout",
    "attention_probs_dropout_prob": "attention_dropout",
    "initializer_range": "initializer_range",
}
_ACTIVATIONS = ("gelu", "gelu_new", "gelu_pytorch_tanh")
"""google-research/bert's `gelu` is the tanh approximation; Hugging Face's is the exact function."""
_ONLY = {"layer_norm_eps": BertShape.layer_norm_eps, "position_embedding_type": "absolute", "tie_word_embeddings": True}
HUGGING_FACE_ACTIVATION = "gelu_pytorch_tanh"


def read_bert_config(path: Path) -> tuple[BertShape, str]:
    """Return the sizes, with the real vocabulary as vocab_size, and the activation's name.

    Raises CheckpointError if the file can't be read, lacks a size, or describes a model other than this BERT.
    """
    config = read_object(path, CheckpointError, "give the checkpoint's bert_config.json, or copy it again")
    sizes = {ours: _size(path, config, theirs) for theirs, ours in SIZES.items()}
    if sizes["hidden_size"] % sizes["attention_heads"]:
        raise CheckpointError(
            f"{path}: hidden_size {sizes['hidden_size']} is not a multiple of num_attention_heads "
            f"{sizes['attention_heads']}; copy the file again"
        )
    rates: dict[str, Any] = {ours: _rate(path, config, theirs) for theirs, ours in _RATES.items() if theirs in config}
    activation = config.get("hidden_act", "gelu")
    if activation not in _ACTIVATIONS:
        raise CheckpointError(f"{path}: hidden_act: found {activation!r}, expected one of {', '.join(_ACTIVATIONS)}")
    for name, expected in _ONLY.items():
        if config.get(name, expected) != expected:
            raise CheckpointError(
                f"{path}: {name}: found {config[name]!r}, expected {expected!r}; this model supports no other"
            )
    return BertShape(**sizes, **rates), activation


def hugging_face_config(shape: BertShape) -> dict[str, Any]:
    """Return config.json of BertForPreTraining for a shape whose vocab_size is the real vocabulary."""
    return {
        "architectures": ["BertForPreTraining"],
        "model_type": "bert",
        "hidden_act": HUGGING_FACE_ACTIVATION,
        **{theirs: getattr(shape, ours) for theirs, ours in (SIZES | _RATES).items()},
        **_ONLY,
        "pad_token_id": 0,
    }


def _size(path: Path, config: dict[str, Any], name: str) -> int:
    value = config.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        found = "nothing" if name not in config else repr(value)
        raise CheckpointError(f"{path}: {name}: found {found}, expected a whole number from 1; copy it again")
    return value


def _rate(path: Path, config: dict[str, Any], name: str) -> float:
    value = config[name]
    if not isinstance(value, int | float) or not 0 <= value < 1:
        raise CheckpointError(f"{path}: {name}: found {value!r}, expected a number from 0 up to 1; copy it again")
    return float(value)
