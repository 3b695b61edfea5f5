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
    tensors: Mapping[str, np.ndarray],
    *,
    shards: int = 1,
    compression: int = PLAIN,
    slices: Mapping[str, int] | None = None,
    big_endian: bool = False,
) -> None:
    """Write `prefix`.index and its data files. Tensors go to the shards in turn."""
    data = [bytearray() for _ in range(shards)]
    entries = {b"": scalar(1, shards) + scalar(2, int(big_endian)) + embedded(3, scalar(1, 1))}
    for number, (name, tensor) in enumerate(sorted(tensors.items())):
        shard = number % shards
        stored = tensor.tobytes()
        sizes = b"".join(embedded(2, scalar(1, size)) for size in tensor.shape)
        message = scalar(1, _TYPES[tensor.dtype.name]) + embedded(2, sizes)
        message += scalar(3, shard) + scalar(4, len(data[shard])) + scalar(5, len(stored))
        message += varint(6 << 3 | 5) + masked_crc(stored)
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
