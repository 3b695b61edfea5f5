import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from bertbench.checkpoint.weights_file import FORMAT, Weights
from bertbench.common.errors import CheckpointError
from bertbench.model.bert import Bert
from tests.checkpoint.tiny_weights import PADDED, tiny_weights, write_tiny
from tests.damage import cut


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    return write_tiny(tmp_path / "tiny.safetensors")


def test_written_weights_are_loaded_unchanged(weights: Path) -> None:
    model = Bert(replace(PADDED, hidden_dropout=0.3))  # rates may differ: no tensor depends on them
    Weights.open(weights).put_into(model)
    assert all(torch.equal(tensor, tiny_weights()[name]) for name, tensor in model.state_dict().items())
    opened = Weights.open(weights)
    assert (opened.shape, opened.real_vocab_size, opened.source) == (PADDED, 89, "a test")
    assert opened.parameters == sum(tensor.numel() for tensor in tiny_weights().values())
    assert [path.name for path in weights.parent.iterdir()] == [weights.name]
    (weights.parent / "any").touch()
    assert weights.stat().st_mode == (weights.parent / "any").stat().st_mode


@pytest.mark.parametrize(
    "changes",
    [
        {"layers": 3},
        {"attention_heads": 7},  # no tensor's shape tells
    ],
)
def test_a_model_of_another_shape_is_refused(weights: Path, changes: dict[str, int]) -> None:
    with pytest.raises(CheckpointError, match=f"{weights}: .*{next(iter(changes))}"):
        Weights.open(weights).put_into(Bert(replace(PADDED, **changes)))


def saved(path: Path, change: Callable[[dict[str, Tensor], dict[str, str]], Any]) -> Path:
    """A weights file with something changed before it was written."""
    tensors = {name: tensor.clone() for name, tensor in tiny_weights().items()}
    metadata = {"format": FORMAT, "shape": json.dumps(asdict(PADDED)), "real_vocab_size": "89", "source": "a test"}
    change(tensors, metadata)
    save_file(tensors, path, metadata)
    return path


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda tensors, _: tensors.pop("pooler.bias"), "pooler.bias"),
        (lambda tensors, _: tensors.update(more=torch.zeros(3)), "more"),
        (
            lambda tensors, _: tensors.update({"pooler.bias": torch.zeros(14, dtype=torch.float16)}),
            "pooler.bias",
        ),
        (lambda _, metadata: metadata.pop("format"), "format"),
        (lambda _, metadata: metadata.update(shape="{}"), "metadata"),
    ],
)
def test_a_file_whose_content_contradicts_its_header_is_refused(
    tmp_path: Path, change: Callable[[dict[str, Tensor], dict[str, str]], Any], named: str
) -> None:
    path = saved(tmp_path / "odd.safetensors", change)
    with pytest.raises(CheckpointError, match=f"{path}: .*{named}"):
        Weights.open(path)


def test_a_pickle_is_named_as_one(tmp_path: Path) -> None:
    torch.save({"model": torch.zeros(3)}, tmp_path / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin: .*pickle"):
        Weights.open(tmp_path / "pytorch_model.bin")


def test_a_missing_truncated_or_foreign_file_is_refused(weights: Path, tmp_path: Path) -> None:
    cut(weights, -1)
    (tmp_path / "text").write_text("no weights at all")
    (tmp_path / "empty").touch()
    for path in (weights, tmp_path / "text", tmp_path / "empty"):
        with pytest.raises(CheckpointError, match=f"{path}: "):
            Weights.open(path)
    for path in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(CheckpointError, match=f"{path}: "):
            Weights.open(path)


def test_no_file_is_overwritten_and_no_partial_file_remains(weights: Path, tmp_path: Path) -> None:
    before = weights.read_bytes()
    incomplete = {name: tensor for name, tensor in tiny_weights().items() if name != "pooler.bias"}
    for path, tensors, expected in (
        (weights, tiny_weights(4), str(weights)),
        (tmp_path / "nowhere" / "x", tiny_weights(), "nowhere/x"),
        (weights / "x", tiny_weights(), str(weights / "x")),
        (tmp_path / "y", incomplete, r"pooler\.bias"),
    ):
        with pytest.raises(CheckpointError, match=expected):
            write_tiny(path, tensors)
    assert weights.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == [weights.name]
