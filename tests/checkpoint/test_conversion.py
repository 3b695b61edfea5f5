import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import mlperf_logging
import numpy as np
import pytest

from bertbench.checkpoint.conversion import convert_checkpoint, padded_vocabulary
from bertbench.checkpoint.tensor_names import pieces
from bertbench.checkpoint.tensorflow.reader import open_tensorflow
from bertbench.checkpoint.weights_file import Weights
from bertbench.common.errors import CheckpointError
from bertbench.model.shape import BertShape
from tests.checkpoint.bundles import TINY, tensorflow_1, with_optimizer, write_bundle
from tests.checkpoint.tiny_weights import CONFIG


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "bert_config.json"
    path.write_text(json.dumps(CONFIG))
    return path


@pytest.mark.parametrize("ruleset", ["1.1.0", "2.0.0", "2.1.0"])
def test_tensorflow_s_names_for_bert_large_are_those_of_the_rules(ruleset: str) -> None:
    rules = Path(mlperf_logging.__path__[0]) / "compliance_checker" / f"training_{ruleset}" / "closed_bert.yaml"
    wanted = re.findall(r'"((?:bert|cls)/[^"]+)"', rules.read_text())
    assert len(wanted) == 398
    assert sorted(piece.tensorflow for piece in pieces(BertShape())) == sorted(wanted)


def imported(tmp_path: Path, config: Path, tensors: Mapping[str, np.ndarray], **how: int) -> Weights:
    write_bundle(tmp_path / "model", tensors, **how)
    convert_checkpoint(open_tensorflow(tmp_path / "model", config), tmp_path / "out.safetensors", 96)
    return Weights.open(tmp_path / "out.safetensors")


def test_a_tensorflow_1_checkpoint_becomes_the_model_s_weights(tmp_path: Path, config: Path) -> None:
    variables = tensorflow_1()
    weights = imported(tmp_path, config, with_optimizer(variables), shards=2)
    found = {name: tensor.numpy() for name, tensor in weights.read().items()}
    assert weights.shape == replace(TINY, vocab_size=96)  # the next multiple of 8
    assert (weights.real_vocab_size, weights.source) == (89, "TensorFlow checkpoint model")
    attention = "bert/encoder/layer_1/attention"
    for row, name in enumerate(("query", "key", "value")):
        rows = slice(14 * row, 14 * row + 14)
        assert np.array_equal(found["layers.1.qkv.weight"][rows], variables[f"{attention}/self/{name}/kernel"].T)
        assert np.array_equal(found["layers.1.qkv.bias"][rows], variables[f"{attention}/self/{name}/bias"])
    # every other tensor is one of these kinds, and named by the same list in Hugging Face's model
    kernel = variables["bert/encoder/layer_0/intermediate/dense/kernel"]
    assert np.array_equal(found["layers.0.feed_forward_in.weight"], kernel.T)
    for ours, theirs in {
        "embeddings.position.weight": "bert/embeddings/position_embeddings",
        "embeddings.norm.weight": "bert/embeddings/LayerNorm/gamma",
        "layers.1.attention_norm.bias": f"{attention}/output/LayerNorm/beta",
        "next_sentence.weight": "cls/seq_relationship/output_weights",
    }.items():
        assert np.array_equal(found[ours], variables[theirs]), ours
    for ours, theirs in {
        "embeddings.word.weight": "bert/embeddings/word_embeddings",
        "masked_lm.bias": "cls/predictions/output_bias",
    }.items():
        assert np.array_equal(found[ours][:89], variables[theirs])
        assert len(found[ours]) == 96
        assert not found[ours][89:].any()


def test_a_tensorflow_2_checkpoint_is_refused_with_the_place_of_the_other(tmp_path: Path, config: Path) -> None:
    name = "encoder/layer_with_weights-0/embeddings/.ATTRIBUTES/VARIABLE_VALUE"
    assert "tf1_ckpt" in refused(tmp_path, config, {name: np.zeros((89, 14), np.float32)})


def test_every_tensor_is_accounted_for(tmp_path: Path, config: Path) -> None:
    variables = tensorflow_1()
    tensors = {**with_optimizer(variables), "bert/extra": np.zeros(3, np.float32)}
    del tensors["bert/pooler/dense/kernel"]
    write_bundle(tmp_path / "model", tensors)
    origin = open_tensorflow(tmp_path / "model", config)
    assert set(origin.used) | set(origin.skipped) == set(tensors)
    assert origin.missing == ["bert/pooler/dense/kernel"]
    assert origin.used["bert/encoder/layer_0/attention/self/key/bias"] == "layers.0.qkv.bias"
    assert {"global_step", "bert/extra", "bert/pooler/dense/bias/adam_m"} < set(origin.skipped)
    with pytest.raises(CheckpointError, match="bert/pooler/dense/kernel"):
        convert_checkpoint(origin, tmp_path / "out", 96)


def test_the_vocabulary_is_padded_to_a_multiple_of_8_or_to_what_is_asked() -> None:
    assert [padded_vocabulary(real, None) for real in (30_522, 30_528, 1)] == [30_528, 30_528, 8]
    assert padded_vocabulary(30_522, 30_592) == 30_592
    with pytest.raises(CheckpointError, match="30,522"):
        padded_vocabulary(30_522, 30_521)


def refused(tmp_path: Path, config: Path, tensors: Mapping[str, np.ndarray], **how: object) -> str:
    """Return what importing these tensors prints; it may leave no file."""
    write_bundle(tmp_path / "model", tensors, **how)
    with pytest.raises(CheckpointError) as caught:
        convert_checkpoint(open_tensorflow(tmp_path / "model", config), tmp_path / "out.safetensors", 96)
    assert not list(tmp_path.glob("out*"))
    return str(caught.value)


def test_rows_above_the_vocabulary_are_padding(tmp_path: Path, config: Path) -> None:
    variables = tensorflow_1(replace(TINY, vocab_size=96))
    weights = imported(tmp_path, config, variables)
    words = weights.read()["embeddings.word.weight"].numpy()
    assert weights.real_vocab_size == 89
    assert np.array_equal(words[:89], variables["bert/embeddings/word_embeddings"][:89])
    assert not words[89:].any()
    (note,) = open_tensorflow(tmp_path / "model", config).notes
    assert "96 rows" in note


def test_values_that_are_not_finite_stop_an_import(tmp_path: Path, config: Path) -> None:
    variables = tensorflow_1()
    variables["bert/pooler/dense/kernel"][2, 3:] = np.nan
    said = refused(tmp_path, config, variables)
    assert "bert/pooler/dense/kernel: 11 of 196 values" in said


@pytest.mark.parametrize("name", [".", "model.meta", "mode"])
def test_another_path_is_refused_with_the_names_of_checkpoints(tmp_path: Path, config: Path, name: str) -> None:
    for checkpoint in ("model", "model-2"):
        write_bundle(tmp_path / checkpoint, tensorflow_1())
    with pytest.raises(CheckpointError, match="model, model-2"):
        open_tensorflow(tmp_path / name, config)


def test_a_tensor_of_another_shape_is_refused_by_name(tmp_path: Path, config: Path) -> None:
    name = "bert/pooler/dense/kernel"
    said = refused(tmp_path, config, {**tensorflow_1(), name: np.zeros((14, 13), np.float32)})
    assert f"{name}: found shape (14, 13), expected (14, 14)" in said


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("{", "JSON"),
        (json.dumps({key: CONFIG[key] for key in CONFIG if key != "vocab_size"}), "vocab_size"),
        (json.dumps({**CONFIG, "num_attention_heads": 3}), "num_attention_heads"),
        (json.dumps({**CONFIG, "hidden_act": "relu"}), "hidden_act"),
        (json.dumps({**CONFIG, "layer_norm_eps": 1e-5}), "layer_norm_eps"),
    ],
)
def test_a_bad_configuration_is_one_error(tmp_path: Path, config: Path, content: str, expected: str) -> None:
    config.write_text(content)
    said = refused(tmp_path, config, tensorflow_1())
    assert str(config) in said
    assert expected in said
