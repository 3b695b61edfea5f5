"""Write TensorFlow checkpoints as TensorFlow does, so that tests need neither TensorFlow nor its files."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from bertbench.checkpoint.tensor_names import pieces
from bertbench.model.shape import BertShape
from tests.protobuf import embedded, masked_crc, scalar, varint

MAGIC = bytes.fromhex("57fb808b247547db")
PLAIN, SNAPPY = 0, 1
_TYPES = {"float32": 1, "float64": 2, "int64": 9}
_ENTRIES_A_BLOCK, _ENTRIES_A_RESTART = 7, 3
_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"

TINY = BertShape(
    vocab_size=89, hidden_size=14, layers=2, attention_heads=2, feed_forward_size=23, max_positions=29,
    hidden_dropout=0.0, attention_dropout=0.0,
)  # fmt: skip
"""The shape of the tests' tiny system, without the padding of its vocabulary."""


def snappy_of_literals(data: bytes) -> bytes:
    """Valid Snappy without any compression: literals of up to 60 bytes."""
    parts = [data[start : start + 60] for start in range(0, len(data), 60)]
    return varint(len(data)) + b"".join(bytes([len(part) - 1 << 2]) + part for part in parts)


def block(entries: list[tuple[bytes, bytes]]) -> bytes:
    out, restarts, before = bytearray(), [], b""
    for number, (key, value) in enumerate(entries):
        shared = 0
        if number % _ENTRIES_A_RESTART:
            while shared < min(len(key), len(before)) and key[shared] == before[shared]:
                shared += 1
        else:
            restarts.append(len(out))
        out += varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
        before = key
    restarts = restarts or [0]
    return bytes(out) + b"".join(place.to_bytes(4, "little") for place in [*restarts, len(restarts)])


def table(entries: Mapping[bytes, bytes], compression: int = PLAIN) -> bytes:
    file = bytearray()

    def add(content: list[tuple[bytes, bytes]]) -> bytes:
        """Append a block; return its handle."""
        stored = block(content)
        if compression == SNAPPY:
            stored = snappy_of_literals(stored)
        handle = varint(len(file)) + varint(len(stored))
        file.extend(stored + bytes([compression]) + masked_crc(stored + bytes([compression])))
        return handle

    ordered = sorted(entries.items())
    index = []
    for start in range(0, len(ordered), _ENTRIES_A_BLOCK):
        part = ordered[start : start + _ENTRIES_A_BLOCK]
        index.append((part[-1][0], add(part)))
    handles = add([]) + add(index)
    return bytes(file) + handles.ljust(40, b"\0") + MAGIC


def write_bundle(
    prefix: Path,
    tensors: Mapping[str, np.ndarray | bytes],
    *,
    shards: int = 1,
    compression: int = PLAIN,
    slices: Mapping[str, int] | None = None,
    big_endian: bool = False,
) -> None:
    """Write `prefix`.index and its data files. Tensors go to the shards in turn, and bytes become a string."""
    data = [bytearray() for _ in range(shards)]
    entries = {b"": scalar(1, shards) + scalar(2, int(big_endian)) + embedded(3, scalar(1, 1))}
    for number, (name, tensor) in enumerate(sorted(tensors.items())):
        shard = number % shards
        if isinstance(tensor, bytes):
            length = len(tensor).to_bytes(4, "little")
            kind, dimensions, stored = 7, (), varint(len(tensor)) + masked_crc(length) + tensor
            checksum = masked_crc(length + masked_crc(length) + tensor)
        else:
            kind, dimensions, stored = _TYPES[tensor.dtype.name], tensor.shape, tensor.tobytes()
            checksum = masked_crc(stored)
        message = scalar(1, kind) + embedded(2, b"".join(embedded(2, scalar(1, size)) for size in dimensions))
        message += scalar(3, shard) + scalar(4, len(data[shard])) + scalar(5, len(stored))
        message += varint(6 << 3 | 5) + checksum
        message += embedded(7, b"") * (slices or {}).get(name, 0)
        entries[name.encode()] = message
        data[shard] += stored
    prefix.with_name(prefix.name + ".index").write_bytes(table(entries, compression))
    for shard, content in enumerate(data):
        prefix.with_name(f"{prefix.name}.data-{shard:05d}-of-{shards:05d}").write_bytes(content)


def tensorflow_1(shape: BertShape = TINY) -> dict[str, np.ndarray]:
    """Random weights under TensorFlow 1's names, kernels [in, out]."""
    random = np.random.default_rng(5)
    return {
        piece.tensorflow: random.normal(size=piece.shape[::-1] if piece.transposed else piece.shape).astype(np.float32)
        for piece in pieces(shape)
    }


def with_optimizer(variables: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The same weights, with the variables that a training run saves in addition."""
    slots = {
        f"{name}/{slot}": np.zeros_like(value) for name, value in variables.items() for slot in ("adam_m", "adam_v")
    }
    powers = {f"beta{number}_power": np.float32(0.9).reshape(()) for number in (1, 2)}
    return {**variables, **slots, **powers, "global_step": np.int64(28252).reshape(())}


_ENCODER_OBJECTS = {
    "word_embeddings": "layer_with_weights-0/embeddings",
    "position_embeddings": "layer_with_weights-1/embeddings",
    "token_type_embeddings": "layer_with_weights-2/embeddings",
    "LayerNorm": "layer_with_weights-3",
    "attention/self/query": "_attention_layer/_query_dense",
    "attention/self/key": "_attention_layer/_key_dense",
    "attention/self/value": "_attention_layer/_value_dense",
    "attention/output/dense": "_attention_layer/_output_dense",
    "attention/output/LayerNorm": "_attention_layer_norm",
    "intermediate/dense": "_intermediate_dense",
    "output/dense": "_output_dense",
    "output/LayerNorm": "_output_layer_norm",
}
_HEAD_OBJECTS = {  # by attribute, by place in a Keras model, the variable's own name
    "cls/predictions/output_": ("masked_lm/", "layer_with_weights-1/", "cls/predictions/output_bias/"),
    "cls/predictions/transform/dense/": (
        "masked_lm/dense/", "layer_with_weights-1/dense/", "cls/predictions/transform/dense/",
    ),
    "cls/predictions/transform/LayerNorm/": (
        "masked_lm/layer_norm/", "layer_with_weights-1/layer_norm/", "cls/predictions/transform/LayerNorm/",
    ),
    "cls/seq_relationship/output_": (
        "classification/layer_with_weights-0/", "layer_with_weights-2/layer_with_weights-0/",
        "predictions/transform/logits/",
    ),
}  # fmt: skip


def _head_of(name: str, kind: int) -> str | None:
    """The name of a head's variable in one of the three kinds; None for another variable."""
    for folder, others in _HEAD_OBJECTS.items():
        if name.startswith(folder):
            return others[kind] + name.removeprefix(folder).replace("weights", "kernel")
    return None


def tensorflow_2(variables: Mapping[str, np.ndarray], shape: BertShape = TINY) -> dict[str, np.ndarray | bytes]:
    """The same weights as a TensorFlow 2 model keeps them, everything found by attributes."""
    return {
        _object_of(name, shape, encoder="encoder/", head=0) + _VALUE: _keras_shape(name, value, shape)
        for name, value in variables.items()
    }


def tensorflow_2_with_graph(
    variables: Mapping[str, np.ndarray], shape: BertShape = TINY
) -> dict[str, np.ndarray | bytes]:
    """The same weights in a Keras model whose heads differ only in the graph of objects."""
    tensors: dict[str, np.ndarray | bytes] = {}
    graph = b""
    for name, value in variables.items():
        key = _object_of(name, shape, encoder="model/layer_with_weights-0/", head=1) + _VALUE
        tensors[key] = _keras_shape(name, value, shape)
        own_name = _head_of(name, 2) or "unknown"
        attribute = embedded(1, b"VARIABLE_VALUE") + embedded(2, own_name.encode()) + embedded(3, key.encode())
        graph += embedded(1, embedded(1, scalar(1, 1)) + embedded(2, attribute))
    return {**tensors, "_CHECKPOINTABLE_OBJECT_GRAPH": graph}


def _object_of(name: str, shape: BertShape, encoder: str, head: int) -> str:
    if in_head := _head_of(name, head):
        return ("model/" if head else "") + in_head
    *folders, last = name.removeprefix("bert/").split("/")
    if folders[0] == "pooler":
        return f"{encoder}layer_with_weights-{4 + shape.layers}/{last}"
    if folders[0] == "embeddings":
        if folders[1:]:  # LayerNorm
            return f"{encoder}{_ENCODER_OBJECTS['LayerNorm']}/{last}"
        return encoder + _ENCODER_OBJECTS[last]
    number = int(folders[1].removeprefix("layer_"))
    return f"{encoder}layer_with_weights-{4 + number}/{_ENCODER_OBJECTS['/'.join(folders[2:])]}/{last}"


def _keras_shape(name: str, value: np.ndarray, shape: BertShape) -> np.ndarray:
    heads = shape.attention_heads
    if name.endswith("output_weights"):
        return np.ascontiguousarray(value.T)
    if "/attention/self/" in name:
        return value.reshape(*value.shape[:-1], heads, -1)
    if name.endswith("/attention/output/dense/kernel"):
        return value.reshape(heads, -1, shape.hidden_size)
    return value
