import json
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from bertbench.common.errors import CheckpointError
from bertbench.loading.batch import batch_of
from bertbench.model.bert import Bert
from bertbench.weights.convert import convert
from bertbench.weights.file import Weights
from bertbench.weights.hugging_face import export, open_hugging_face
from tests.tiny import Sample, columns_of
from tests.weights.bundles import TINY
from tests.weights.test_weights import PADDED, write_tiny

DECODER = "cls.predictions.decoder.weight"
WORDS = "bert.embeddings.word_embeddings.weight"


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """Random weights, every one of them, large enough that another GELU shows in the logits."""
    generator = torch.Generator().manual_seed(3)
    tensors = {
        name: 0.5 * torch.randn(tensor.shape, generator=generator) for name, tensor in Bert(PADDED).state_dict().items()
    }
    for name in ("embeddings.word.weight", "masked_lm.bias"):
        tensors[name][89:] = 0
    return write_tiny(tmp_path / "ours.safetensors", tensors)


@pytest.fixture
def model(tmp_path: Path, weights: Path) -> Path:
    """The same weights, exported."""
    export(Weights.open(weights), tmp_path / "model")
    return tmp_path / "model"


def rewrite(model: Path, tensors: dict[str, Tensor]) -> None:
    save_file(tensors, model / "model.safetensors", metadata={"format": "pt"})


def back(model: Path, rows: int = 97) -> dict[str, Tensor]:
    out = model.parent / "back.safetensors"
    convert(open_hugging_face(model), out, rows)
    return load_file(out)


def test_the_export_has_the_real_vocabulary_and_names_its_activation(model: Path) -> None:
    tensors, config = load_file(model / "model.safetensors"), json.loads((model / "config.json").read_text())
    assert tensors[WORDS].shape == (89, 14)
    assert tensors["cls.predictions.bias"].shape == (89,)
    assert len(tensors) == 46
    assert (config["vocab_size"], config["hidden_act"]) == (89, "gelu_pytorch_tanh")
    assert sorted(path.name for path in model.parent.iterdir()) == ["model", "ours.safetensors"]


def test_old_names_tied_copies_and_half_precision_are_read(model: Path) -> None:
    tensors = load_file(model / "model.safetensors")
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
        for name, tensor in tensors.items()
    }
    position_ids = torch.arange(29)
    rewrite(
        model,
        {**{name: t.bfloat16() for name, t in old.items()}, DECODER: tensors[WORDS].bfloat16(), "ids": position_ids},
    )
    origin = open_hugging_face(model)
    assert sorted(origin.skipped) == [DECODER, "ids"]
    assert origin.missing == []
    found = back(model)["layers.0.attention_norm.weight"]
    expected = tensors["bert.encoder.layer.0.attention.output.LayerNorm.weight"]
    assert torch.equal(found, expected.bfloat16().float())


def test_another_gelu_is_noted(model: Path) -> None:
    config = json.loads((model / "config.json").read_text())
    assert open_hugging_face(model).notes == ()
    (model / "config.json").write_text(json.dumps({**config, "hidden_act": "gelu"}))
    (note,) = open_hugging_face(model).notes
    assert "hidden_act is gelu; this model computes gelu_pytorch_tanh" in note


def test_what_isn_t_such_a_model_is_one_error(model: Path, weights: Path) -> None:
    tensors = load_file(model / "model.safetensors")
    pooler = "bert.pooler.dense.weight"
    for changed, expected in (
        ({**tensors, DECODER: tensors[WORDS] + 1}, f"{DECODER}: differs from {WORDS}"),
        ({**tensors, pooler: torch.zeros(14, 13)}, f"{pooler}: found shape (14, 13), expected (14, 14)"),
        ({**tensors, pooler: torch.zeros(14, 14, dtype=torch.int64)}, f"{pooler}: found torch.int64, expected a float"),
        ({name: tensor for name, tensor in tensors.items() if name != pooler}, f"lacks 1 of 46 tensors: {pooler}"),
    ):
        rewrite(model, changed)
        with pytest.raises(CheckpointError, match=re.escape(expected)):
            back(model)
    (model / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"model\.safetensors: cannot be read .* save_pretrained"):
        open_hugging_face(model)
    with pytest.raises(CheckpointError, match=r"config\.json: cannot be read"):
        open_hugging_face(model.parent)
    with pytest.raises(CheckpointError, match="model: exists already"):
        export(Weights.open(weights), model)
    with pytest.raises(CheckpointError, match=r"ours\.safetensors/model: cannot be written"):
        export(Weights.open(weights), weights / "model")


def test_logits_equal_those_of_transformers(model: Path, weights: Path) -> None:
    transformers = pytest.importorskip("transformers")
    theirs = transformers.BertForPreTraining.from_pretrained(model).eval()
    ours = Bert(PADDED).eval()
    Weights.open(weights).put_into(ours)
    lengths = [29, 17, 17, 5]
    tokens = [torch.randint(TINY.vocab_size, (n,), generator=torch.Generator().manual_seed(n)) for n in lengths]
    segments = [(torch.arange(n) > n // 2).long() for n in lengths]
    samples = [
        Sample(ids.tolist(), kinds.tolist(), list(range(len(ids))), [0] * len(ids), 0)  # all scored
        for ids, kinds in zip(tokens, segments, strict=True)
    ]
    with torch.no_grad():
        scores = ours(*batch_of(columns_of(samples)).inputs)
        for place, (ids, kinds) in enumerate(zip(tokens, segments, strict=True)):
            expected = theirs(
                input_ids=ids[None], token_type_ids=kinds[None], attention_mask=torch.ones_like(ids)[None]
            )
            start = sum(lengths[:place])
            found = scores.masked_lm_MV[start : start + len(ids), :89]
            torch.testing.assert_close(found, expected.prediction_logits[0], atol=1e-5, rtol=0)
            sentence = scores.next_sentence_S2[place]
            torch.testing.assert_close(sentence, expected.seq_relationship_logits[0], atol=1e-5, rtol=0)
