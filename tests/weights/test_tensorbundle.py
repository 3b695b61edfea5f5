from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bertbench.common.errors import CheckpointError
from bertbench.weights.tensorflow.snappy import decompress
from bertbench.weights.tensorflow.tensorbundle import Bundle
from tests.damage import cut, flip
from tests.weights.bundles import MAGIC, PLAIN, SNAPPY, table, tensorflow_1, write_bundle


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("compression", [PLAIN, SNAPPY])
def test_what_was_written_is_read_bit_for_bit(tmp_path: Path, shards: int, compression: int) -> None:
    tensors = tensorflow_1()
    write_bundle(tmp_path / "model", tensors, shards=shards, compression=compression)
    bundle = Bundle.open(tmp_path / "model")
    assert list(bundle.entries) == sorted(tensors)
    for name, tensor in tensors.items():
        assert bundle.read(name).tobytes() == tensor.tobytes()
        assert bundle.read(name).shape == tensor.shape


def test_a_string_is_read_with_its_checksum(tmp_path: Path) -> None:
    write_bundle(tmp_path / "model", {"text": b"of 13 letters", "x": np.zeros(3, np.float32)})
    bundle = Bundle.open(tmp_path / "model")
    assert bundle.read_text("text") == b"of 13 letters"
    flip(tmp_path / "model.data-00000-of-00001", 7)
    with pytest.raises(CheckpointError, match="text: is damaged"):
        Bundle.open(tmp_path / "model").read_text("text")


def test_snappy_copies_overlap_and_reach_back() -> None:
    # 13 bytes: literal "abc"; copy of 4 from 3 back, "abca"; literal "d" (length in one more byte);
    # copy of 5 from 2 back, which repeats what it writes: "adada".
    block = bytes([13, 2 << 2]) + b"abc" + bytes([1, 3, 60 << 2, 0]) + b"d" + bytes([(5 - 1) << 2 | 2, 2, 0])
    assert decompress(block) == b"abcabcadadada"


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        (bytes([3, 2 << 2]) + b"ab", "literal exceeds its block"),
        (bytes([4, 1, 1]), "reaches back 1 bytes, but there are 0"),
        (bytes([9, 2 << 2]) + b"abc", "has 3 bytes, expected 9"),
        (bytes([9, 2 << 2]) + b"abc" + bytes([2]), "copy exceeds its block"),
        (b"\xff" * 12, "a number of more than 10 bytes"),
    ],
)
def test_damaged_snappy_is_told(block: bytes, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        decompress(block)


KERNEL = "bert/encoder/layer_0/attention/self/query/kernel"
INDEX, DATA = "model.index", "model.data-00000-of-00001"
DAMAGE: list[tuple[str, Callable[[Path], object], list[str]]] = [
    ("no index", lambda folder: (folder / INDEX).unlink(), [INDEX, "No such file", "without .index"]),
    ("truncated index", lambda folder: cut(folder / INDEX, 100), [INDEX, "found 100 bytes", "truncated"]),
    ("damaged block", lambda folder: flip(folder / INDEX, 20), [INDEX, "checksum of the block at byte 0 is wrong"]),
    ("damaged footer", lambda folder: (folder / INDEX).write_bytes(b"\xff" * 40 + MAGIC), [INDEX, "is damaged"]),
    ("not a checkpoint", lambda folder: (folder / INDEX).write_bytes(bytes(400)), [INDEX, "another file"]),
    (
        "a table, no bundle",
        lambda folder: (folder / INDEX).write_bytes(table({b"key": b"value"})),
        ["without a checkpoint's header"],
    ),
    ("an entry that is none", lambda folder: (folder / INDEX).write_bytes(table({b"": b"", b"a": b"\xff"})), [INDEX]),
    ("unknown compression", lambda folder: (folder / INDEX).write_bytes(table({b"": b""}, 7)), ["compression 7"]),
    ("no data", lambda folder: (folder / DATA).unlink(), [DATA, "No such file", KERNEL, "copy all data files"]),
    ("empty data", lambda folder: cut(folder / DATA, 0), [DATA, "it is empty", KERNEL]),
    ("truncated data", lambda folder: cut(folder / DATA, 30), [DATA, KERNEL, "of 30"]),
    ("damaged data", lambda folder: flip(folder / DATA, 99), [DATA, KERNEL, "its checksum is wrong"]),
]


@pytest.mark.parametrize(("damage", "expected"), [case[1:] for case in DAMAGE], ids=[case[0] for case in DAMAGE])
def test_a_damaged_checkpoint_is_one_error_that_names_file_and_tensor(
    tmp_path: Path, damage: Callable[[Path], object], expected: list[str]
) -> None:
    write_bundle(tmp_path / "model", {KERNEL: np.arange(196, dtype=np.float32).reshape(14, 14)})
    damage(tmp_path)
    with pytest.raises(CheckpointError) as caught:
        Bundle.open(tmp_path / "model").read(KERNEL)
    for part in expected:
        assert part in str(caught.value)


def test_what_can_t_be_read_as_whole_float32_is_refused_by_name(tmp_path: Path) -> None:
    tensors = {"half": np.zeros(3, np.float64), "parts": np.zeros(3, np.float32)}
    write_bundle(tmp_path / "model", tensors, slices={"parts": 2})
    bundle = Bundle.open(tmp_path / "model")
    with pytest.raises(CheckpointError, match="half: found float64, expected float32"):
        bundle.read("half")
    with pytest.raises(CheckpointError, match="parts: is a partitioned variable of 2 slices"):
        bundle.read("parts")
    write_bundle(tmp_path / "big", tensors, big_endian=True)
    with pytest.raises(CheckpointError, match="is big-endian"):
        Bundle.open(tmp_path / "big")
