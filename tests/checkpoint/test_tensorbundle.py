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
    "block",
    [
        bytes([3, 2 << 2]) + b"ab",  # a literal that exceeds its block
        bytes([4, 1, 1]),  # a copy that reaches back 1 byte where there are 0
        bytes([9, 2 << 2]) + b"abc",  # 3 bytes of 9
        bytes([9, 2 << 2]) + b"abc" + bytes([2]),  # a copy that exceeds its block
        b"\xff" * 12,  # a number of more than 10 bytes
    ],
)
def test_damaged_snappy_is_an_error(block: bytes) -> None:
    with pytest.raises(ValueError):
        decompress(block)


KERNEL = "bert/encoder/layer_0/attention/self/query/kernel"
INDEX, DATA = "model.index", "model.data-00000-of-00001"


def filled(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content)


@pytest.mark.parametrize(
    ("name", "damage", "named"),
    [
        (INDEX, Path.unlink, ""),
        (INDEX, lambda path: cut(path, 100), ""),
        (INDEX, lambda path: flip(path, 20), ""),
        (INDEX, filled(b"\xff" * 40 + MAGIC), ""),
        (INDEX, filled(table({b"key": b"value"})), ""),
        (INDEX, filled(table({b"": b"", b"a": b"\xff"})), ""),
        (INDEX, filled(table({b"": b""}, 7)), "compression 7"),
        (INDEX, filled(table({b"": b"", b"a" * 5000: b""})), "5,000"),
        (DATA, Path.unlink, KERNEL),
        (DATA, lambda path: cut(path, 30), KERNEL),
        (DATA, lambda path: flip(path, 99), KERNEL),
    ],
)
def test_a_damaged_checkpoint_is_one_error_that_names_file_and_tensor(
    tmp_path: Path, name: str, damage: Callable[[Path], object], named: str
) -> None:
    write_bundle(tmp_path / "model", {KERNEL: np.arange(196, dtype=np.float32).reshape(14, 14)})
    damage(tmp_path / name)
    with pytest.raises(CheckpointError, match=f"{name}: .*{named}"):
        Bundle.open(tmp_path / "model").read(KERNEL)


def test_a_tensor_that_isn_t_whole_float32_is_refused_by_name(tmp_path: Path) -> None:
    tensors = {"half": np.zeros(3, np.float64), "parts": np.zeros(3, np.float32)}
    write_bundle(tmp_path / "model", tensors, slices={"parts": 2})
    bundle = Bundle.open(tmp_path / "model")
    for name in tensors:
        with pytest.raises(CheckpointError, match=f"{name}: "):
            bundle.read(name)
    write_bundle(tmp_path / "big", tensors, big_endian=True)
    with pytest.raises(CheckpointError, match="is big-endian"):
        Bundle.open(tmp_path / "big")
