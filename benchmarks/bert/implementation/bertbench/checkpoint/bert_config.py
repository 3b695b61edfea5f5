"""Read bert_config.json, or a Hugging Face config.json: the sizes of a checkpoint's model."""

from dataclasses import asdict, fields
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from bertbench.common.errors import CheckpointError
from bertbench.common.json_object import read_as
from bertbench.common.section import Count, Fraction
from bertbench.model.shape import BertShape

HUGGING_FACE_ACTIVATION = "gelu_pytorch_tanh"
"""google-research/bert's `gelu` is the tanh approximation, too; Hugging Face's is the exact function."""
_EPS = BertShape.layer_norm_eps


class _Config(BaseModel):
    """BertShape's fields by their names in the file, and further fields with the values that this model supports."""

    model_config = ConfigDict(strict=True, validate_by_name=True, validate_by_alias=True)

    vocab_size: Count
    hidden_size: Count
    layers: Count = Field(alias="num_hidden_layers")
    attention_heads: Count = Field(alias="num_attention_heads")
    feed_forward_size: Count = Field(alias="intermediate_size")
    max_positions: Count = Field(alias="max_position_embeddings")
    token_types: Count = Field(alias="type_vocab_size")
    hidden_dropout: Fraction = Field(BertShape.hidden_dropout, alias="hidden_dropout_prob")
    attention_dropout: Fraction = Field(BertShape.attention_dropout, alias="attention_probs_dropout_prob")
    initializer_range: Fraction = BertShape.initializer_range
    layer_norm_eps: Annotated[float, Field(ge=_EPS, le=_EPS)] = _EPS
    hidden_act: Literal["gelu", "gelu_new", "gelu_pytorch_tanh"] = "gelu"
    position_embedding_type: Literal["absolute"] = "absolute"
    tie_word_embeddings: Literal[True] = True


def read_bert_config(path: Path) -> tuple[BertShape, str]:
    """Return the sizes, with the real vocabulary as vocab_size, and the activation's name.

    Raises CheckpointError if the file can't be read, lacks a size, or describes a model other than this BERT.
    """
    config: _Config = read_as(path, _Config, CheckpointError, "give the configuration of such a BERT, or copy it again")
    if config.hidden_size % config.attention_heads:
        raise CheckpointError(
            f"{path}: hidden_size {config.hidden_size} is not a multiple of num_attention_heads "
            f"{config.attention_heads}; copy the file again"
        )
    return BertShape(**{field.name: getattr(config, field.name) for field in fields(BertShape)}), config.hidden_act


def hugging_face_config(shape: BertShape) -> dict[str, Any]:
    """Return config.json of BertForPreTraining for a shape whose vocab_size is the real vocabulary."""
    config = _Config.model_validate({**asdict(shape), "hidden_act": HUGGING_FACE_ACTIVATION})
    kind = {"architectures": ["BertForPreTraining"], "model_type": "bert", "pad_token_id": 0}
    return kind | config.model_dump(by_alias=True)
