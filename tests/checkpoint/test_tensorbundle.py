import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bertbench.checkpoint.tensorflow.snappy import decompress
from bertbench.checkpoint.tensorflow.tensorbundle import Bundle
from bertbench.common.errors import CheckpointError
from tests.checkpoint.bundles import MAGIC, PLAIN, SNAPPY, table, tensorflow_1, write_bundle
from tests.damage import cut, flip


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("compression", [PLAIN, SNAPPY])
def test_a_written_bundle_is_read_back_bit_for_bit(tmp_path: Path, shards: int, compression: int) -> None:
    tensors = tensorflow_1()
    write_bundle(tmp_path / "model", tensors, shards=shards, compression=compression)
    bundle = Bundle.open(tmp_path / "model")
    assert list(bundle.entries) == sorted(tensors)
    for name, tensor in tensors.items():
        assert bundle.read(name).tobytes() == tensor.tobytes()
        assert bundle.read(name).shape == tensor.shape


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
def test_damaged_snappy_is_an_error(block: bytes, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        decompress(block)


KERNEL = "bert/encoder/layer_0/attention/self/query/kernel"
INDEX, DATA = "model.index", "model.data-00000-of-00001"


def filled(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content)


@pytest.mark.parametrize(
    ("name", "damage", "expected"),
    [
        (INDEX, Path.unlink, "No such file or directory); give the checkpoint's path without .index"),
        (INDEX, lambda path: cut(path, 100), "100 bytes without the end mark"),
        (INDEX, lambda path: flip(path, 20), "checksum of the block at byte 0 is wrong"),
        (INDEX, filled(b"\xff" * 40 + MAGIC), "is damaged"),
        (INDEX, filled(bytes(400)), "without the end mark"),
        (INDEX, filled(table({b"key": b"value"})), "without a checkpoint's header"),
        (INDEX, filled(table({b"": b"", b"a": b"\xff"})), "is damaged"),
        (INDEX, filled(table({b"": b""}, 7)), "compression 7"),
        (INDEX, filled(table({b"": b"", b"a" * 5000: b""})), "a tensor's name of 5,000 bytes"),
        (DATA, Path.unlink, f"No such file or directory); it holds {KERNEL}: copy all data files"),
        (DATA, lambda path: cut(path, 0), f"is empty, but holds {KERNEL}"),
        (DATA, lambda path: cut(path, 30), f"{KERNEL}: is damaged (the tensor ends at byte 784 of 30)"),
        (DATA, lambda path: flip(path, 99), f"{KERNEL}: is damaged (its checksum is wrong)"),
    ],
)
def test_a_damaged_checkpoint_is_one_error_that_names_file_and_tensor(
    tmp_path: Path, name: str, damage: Callable[[Path], object], expected: str
) -> None:
    write_bundle(tmp_path / "model", {KERNEL: np.arange(196, dtype=np.float32).reshape(14, 14)})
    damage(tmp_path / name)
    with pytest.raises(CheckpointError, match=f"{name}: .*{re.escape(expected)}"):
        Bundle.open(tmp_path / "model").read(KERNEL)


def test_a_tensor_that_isn_t_whole_float32_is_refused_by_name(tmp_path: Path) -> None:
    tensors = {"half": np.zeros(3, np.float64), "parts": np.zeros(3, np.float32)}
    write_bundle(tmp_path / "model", tensors, slices={"parts": 2})
    bundle = Bundle.open(tmp_path / "model")
    for name, expected in (
        ("half", r"found type 2, expected 1 \(float32\)"),
        ("parts", "is a partitioned variable of 2"),
    ):
        with pytest.raises(CheckpointError, match=f"{name}: {expected}"):
            bundle.read(name)
    write_bundle(tmp_path / "big", tensors, big_endian=True)
    with pytest.raises(CheckpointError, match="is big-endian"):
        Bundle.open(tmp_path / "big")
