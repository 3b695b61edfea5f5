"""Map TensorFlow 2's names of BERT's variables to TensorFlow 1's.

A TensorFlow 2 checkpoint names a tensor by the path of Python attributes that leads to it, for example
`encoder/layer_with_weights-4/_attention_layer/_query_dense/kernel/.ATTRIBUTES/VARIABLE_VALUE`, and holds a graph of
these objects with each variable's own name, for example `transformer/layer_0/self_attention/query/kernel`.
If the variable's own name is known, it decides; otherwise the path does.
Names: tensorflow/models, official/nlp (BertEncoder, MaskedLM, Classification, and its TensorFlow 1 converter).
"""

import re

from bertbench.common.protobuf import as_bytes, fields

VALUE_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"
OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"

_LAYER = "bert/encoder/layer_{}"
_WEIGHT, _SCALE = "(kernel|bias)", "(gamma|beta)"
_EMBEDDINGS = "_?(?:position_)?embeddings"

# Regular expression of a name -> TensorFlow 1's name, with the expression's groups filled in.
_BY_VARIABLE = {
    "word_embeddings/embeddings": "bert/embeddings/word_embeddings",
    f"position_embeddings?/{_EMBEDDINGS}": "bert/embeddings/position_embeddings",
    "type_embeddings/embeddings": "bert/embeddings/token_type_embeddings",
    f"embeddings/layer_norm/{_SCALE}": "bert/embeddings/LayerNorm/{}",
    rf"layer_(\d+)/self_attention/(query|key|value)/{_WEIGHT}": f"{_LAYER}/attention/self/{{}}/{{}}",
    rf"layer_(\d+)/(?:self_attention/attention_output|self_attention_output)/{_WEIGHT}": (
        f"{_LAYER}/attention/output/dense/{{}}"
    ),
    rf"layer_(\d+)/self_attention_layer_norm/{_SCALE}": f"{_LAYER}/attention/output/LayerNorm/{{}}",
    rf"layer_(\d+)/intermediate/{_WEIGHT}": f"{_LAYER}/intermediate/dense/{{}}",
    rf"layer_(\d+)/output/{_WEIGHT}": f"{_LAYER}/output/dense/{{}}",
    rf"layer_(\d+)/output_layer_norm/{_SCALE}": f"{_LAYER}/output/LayerNorm/{{}}",
    f"pooler_transform/{_WEIGHT}": "bert/pooler/dense/{}",
    f"cls/predictions/transform/dense/{_WEIGHT}": "cls/predictions/transform/dense/{}",
    f"cls/predictions/transform/LayerNorm/{_SCALE}": "cls/predictions/transform/LayerNorm/{}",
    "cls/predictions/output_bias(?:/bias)?": "cls/predictions/output_bias",
    "predictions/transform/logits/kernel": "cls/seq_relationship/output_weights",
    "predictions/transform/logits/bias": "cls/seq_relationship/output_bias",
}
_IN_HEADS = {
    f"masked_lm/dense/{_WEIGHT}": "cls/predictions/transform/dense/{}",
    f"masked_lm/layer_norm/{_SCALE}": "cls/predictions/transform/LayerNorm/{}",
    "masked_lm/(?:output_)?bias": "cls/predictions/output_bias",
    "classification/(?:layer_with_weights-0|logits|_logits_layer)/kernel": "cls/seq_relationship/output_weights",
    "classification/(?:layer_with_weights-0|logits|_logits_layer)/bias": "cls/seq_relationship/output_bias",
}

_FIRST_LAYER = 4  # number in layer_with_weights-4; words, positions, segments and LayerNorm have 0 to 3
_IN_LAYER = {
    rf"_attention_layer/_(query|key|value)_dense/{_WEIGHT}": "attention/self/{}/{}",
    rf"(?:_attention_layer/_output_dense|_attention_output_dense)/{_WEIGHT}": "attention/output/dense/{}",
    f"_attention_layer_norm/{_SCALE}": "attention/output/LayerNorm/{}",
    f"_intermediate_dense/{_WEIGHT}": "intermediate/dense/{}",
    f"_output_dense/{_WEIGHT}": "output/dense/{}",
    f"_output_layer_norm/{_SCALE}": "output/LayerNorm/{}",
}
_ANYWHERE = "(?:.*/)?"
"""Allows folders before a name."""


def variable_name(path: str, own_name: str | None, layers: int) -> str | None:
    """Return TensorFlow 1's name of the tensor at a path, in a model with `layers` layers; None if it isn't BERT's."""
    if own_name is not None and (name := _named(_BY_VARIABLE, own_name, _ANYWHERE)) is not None:
        return name
    path = path.removesuffix(VALUE_SUFFIX)
    if (name := _named(_IN_HEADS, path, _ANYWHERE)) is not None:
        return name
    # The last number is the encoder's: a model around it may have its own numbers.
    *_, place = re.split(r"(?:^|/)layer_with_weights-", path)
    number, _, rest = place.partition("/")
    if place == path or not number.isdigit():
        return None
    return _in_encoder(int(number), rest, layers)


def own_names(graph: bytes) -> dict[str, str]:
    """Return variables' own names by their keys in the checkpoint, from its TrackableObjectGraph.

    Raises ValueError if it is damaged.
    """
    names = {}
    for node_number, node in fields(graph):
        if node_number != 1:  # TrackableObjectGraph: 1 nodes
            continue
        for field_number, attribute in fields(as_bytes(node)):
            if field_number != 2:  # TrackableObject: 2 attributes
                continue
            tensor = dict(fields(as_bytes(attribute)))  # SerializedTensor: 2 full_name, 3 checkpoint_key
            if 2 in tensor and 3 in tensor:
                names[as_bytes(tensor[3]).decode()] = as_bytes(tensor[2]).decode()
    return names


def _in_encoder(number: int, rest: str, layers: int) -> str | None:
    if number < _FIRST_LAYER - 1:
        if not re.fullmatch(_EMBEDDINGS, rest):
            return None
        return f"bert/embeddings/{('word', 'position', 'token_type')[number]}_embeddings"
    if number == _FIRST_LAYER - 1:
        return f"bert/embeddings/LayerNorm/{rest}" if re.fullmatch(_SCALE, rest) else None
    if number == _FIRST_LAYER + layers:
        return f"bert/pooler/dense/{rest}" if re.fullmatch(_WEIGHT, rest) else None
    name = _named(_IN_LAYER, rest)
    return name and f"{_LAYER.format(number - _FIRST_LAYER)}/{name}"


def _named(table: dict[str, str], text: str, before: str = "") -> str | None:
    """Return the name of the first expression that fits, with its groups filled in."""
    for expression, name in table.items():
        if match := re.fullmatch(before + expression, text):
            return name.format(*match.groups())
    return None
