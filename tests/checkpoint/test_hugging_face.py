import codecs
import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from bertbench.checkpoint.conversion import convert_checkpoint
from bertbench.checkpoint.hugging_face import export, open_hugging_face
from bertbench.checkpoint.tensor_names import pieces, take_apart
from bertbench.checkpoint.weights_file import Weights
from bertbench.common.errors import CheckpointError
from bertbench.finetune.batches import span_batch
from bertbench.finetune.features import Feature
from bertbench.loading.batch import batch_of
from bertbench.model.bert import Bert
from bertbench.model.span import SpanBert
from tests.checkpoint.bundles import TINY
from tests.checkpoint.tiny_weights import PADDED, write_tiny
from tests.tiny import Sample, columns_of

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
    out.unlink(missing_ok=True)
    convert_checkpoint(open_hugging_face(model), out, rows)
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


Tensors = dict[str, Tensor]


def decoder_names(tensors: Tensors) -> Tensors:
    """The tied tensors under their second names, as a writer that drops the first of two names saves them."""
    names = {WORDS: DECODER, "cls.predictions.bias": "cls.predictions.decoder.bias"}
    return {names.get(name, name): tensor for name, tensor in tensors.items()}


def in_shards(model: Path, tensors: Tensors, count: int = 3) -> Path:
    """Replace the model's file by `count` shards and their index; return the index."""
    (model / "model.safetensors").unlink()
    names = [f"model-{number + 1:05d}-of-{count:05d}.safetensors" for number in range(count)]
    shard_of = {name: names[place % count] for place, name in enumerate(tensors)}
    for shard in names:
        held = {name: tensor for name, tensor in tensors.items() if shard_of[name] == shard}
        save_file(held, model / shard, metadata={"format": "pt"})
    return write_index(model, shard_of)


def write_index(model: Path, shard_of: dict[str, str]) -> Path:
    path = model / "model.safetensors.index.json"
    path.write_text(json.dumps({"metadata": {"total_size": 0}, "weight_map": shard_of}))
    return path


def require_transformers_weights(model: Path, found: Tensors) -> None:
    """Transformers reads the same tensors from the folder."""
    transformers = pytest.importorskip("transformers")
    theirs = transformers.BertForPreTraining.from_pretrained(model).state_dict()
    for piece, tensor in take_apart(pieces(TINY), found).items():
        assert torch.equal(tensor, theirs[piece.hugging_face]), piece.hugging_face


@pytest.mark.parametrize("rename", [dict, decoder_names])
def test_shards_and_tied_tensors_under_their_other_names_are_read_as_in_transformers(
    model: Path, rename: Callable[[Tensors], Tensors]
) -> None:
    expected = back(model)
    tensors = rename(load_file(model / "model.safetensors"))
    rewrite(model, tensors)
    found = back(model)
    require_transformers_weights(model, found)
    index = in_shards(model, tensors)
    for place in (model, index):
        sharded = back(place)
        assert all(torch.equal(sharded[name], tensor) for name, tensor in found.items())
    require_transformers_weights(model, sharded)
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_prefixes_of_wrappers_are_dropped(model: Path) -> None:
    expected, tensors = back(model), load_file(model / "model.safetensors")
    rewrite(model, {f"module._orig_mod.{name}": tensor for name, tensor in tensors.items()})
    found = back(model)
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_a_file_of_another_name_is_read_by_its_path(model: Path) -> None:
    expected = back(model)
    path = (model / "model.safetensors").rename(model / "model.fp16.safetensors")
    with pytest.raises(CheckpointError, match=r"model\.fp16\.safetensors"):
        open_hugging_face(model)
    found = back(path)
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_missing_heads_are_named_and_never_random(model: Path) -> None:
    tensors = load_file(model / "model.safetensors")
    without_heads = {name.removeprefix("bert."): one for name, one in tensors.items() if name.startswith("bert.")}
    rewrite(model, without_heads)
    with pytest.raises(CheckpointError, match=r"7 of 46 tensors: cls\.predictions\.bias"):
        back(model)


def test_an_index_that_doesn_t_fit_its_files_is_one_error(model: Path) -> None:
    tensors = load_file(model / "model.safetensors")
    index = in_shards(model, tensors)
    shard_of = json.loads(index.read_text())["weight_map"]
    first = next(iter(shard_of))
    for changed, expected in (
        ({first: "../model-00001-of-00003.safetensors"}, "../model-00001-of-00003.safetensors"),
        ({first: ""}, "''"),
        ({first: "a\0b"}, "a\\x00b"),
        ({first: "model-00002-of-00003.safetensors"}, first),
        ({"other": "gone.safetensors"}, "gone.safetensors"),
    ):
        write_index(model, {**shard_of, **changed})
        with pytest.raises(CheckpointError, match=re.escape(expected)):
            open_hugging_face(model)
    index.write_text('{"metadata": {}}')
    with pytest.raises(CheckpointError, match="weight_map"):
        open_hugging_face(model)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "pytorch_model.bin.index.json"])
def test_a_pickle_is_refused_with_what_to_do(model: Path, name: str) -> None:
    (model / "model.safetensors").rename(model / name)
    for place in (model, model / name):
        with pytest.raises(CheckpointError, match=f"{name}: .*pickle.*save_pretrained"):
            open_hugging_face(place)


def saved(place: Path, legacy: bool = False) -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    torch.save({"model": torch.zeros(3)}, place, _use_new_zipfile_serialization=not legacy)
    return place


@pytest.mark.parametrize(("name", "legacy"), [("ckpt_8601.pt", False), ("weights", True)])
def test_a_pickle_of_any_name_is_known_by_its_content(model: Path, name: str, legacy: bool) -> None:
    (model / "model.safetensors").unlink()
    (model / "config.json").unlink()
    saved(model / name, legacy)
    for place in (model, model / name):
        with pytest.raises(CheckpointError, match=f"{name}: .*pickle"):
            open_hugging_face(place)


def test_pickles_of_deepspeed_are_named_with_its_program(tmp_path: Path) -> None:
    first = saved(tmp_path / "run" / "global_step10" / "mp_rank_00_model_states.pt")
    saved(first.with_name("zero_pp_rank_0_mp_rank_00_optim_states.pt"))
    (tmp_path / "run" / "latest").write_text("global_step10")
    for place in (tmp_path / "run", first.parent, first):
        with pytest.raises(CheckpointError, match=r"mp_rank_00_model_states\.pt: .*zero_to_fp32\.py"):
            open_hugging_face(place)


def test_a_header_s_length_that_begins_like_a_pickle_is_no_pickle(model: Path) -> None:
    header = json.dumps({"__metadata__": {"format": "pt"}}).encode().ljust(0x280)
    content = len(header).to_bytes(8, "little") + header
    assert content[:2] == b"\x80\x02"
    (model / "model.safetensors").write_bytes(content)
    with pytest.raises(CheckpointError, match="lacks 46 of 46 tensors"):
        back(model)


def test_one_of_several_files_is_refused_with_what_to_give(model: Path) -> None:
    in_shards(model, load_file(model / "model.safetensors"))
    with pytest.raises(CheckpointError, match="3 files"):
        open_hugging_face(model / "model-00002-of-00003.safetensors")


def padded(tensors: Tensors, names: tuple[str, ...], rows: int) -> Tensors:
    """The tensors with that many rows more in some of them."""
    return {
        name: torch.cat([tensor, torch.full((rows, *tensor.shape[1:]), 7.0)]) if name in names else tensor
        for name, tensor in tensors.items()
    }


BIAS, DECODER_BIAS = "cls.predictions.bias", "cls.predictions.decoder.bias"


@pytest.mark.parametrize(
    ("names", "rows"),  # to multiples of 8 and of 128
    [((WORDS, BIAS), 7), ((DECODER, DECODER_BIAS), 39), ((WORDS, BIAS, DECODER, DECODER_BIAS), 7)],
)
def test_rows_above_the_vocabulary_are_padding(model: Path, names: tuple[str, ...], rows: int) -> None:
    expected, tensors = back(model), load_file(model / "model.safetensors")
    tied = {**tensors, DECODER: tensors[WORDS].clone(), DECODER_BIAS: tensors[BIAS].clone()}
    rewrite(model, padded(tied, names, rows))
    found = back(model)
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    assert len(open_hugging_face(model).notes) == (WORDS in names)


@pytest.mark.parametrize("rows", [6, 1000])
def test_rows_of_another_vocabulary_are_no_padding(model: Path, rows: int) -> None:
    rewrite(model, padded(load_file(model / "model.safetensors"), (WORDS, BIAS), rows))
    with pytest.raises(CheckpointError, match=rf"found shape \({89 + rows}, 14\), expected \(89, 14\)"):
        back(model)


@pytest.mark.parametrize(("value", "tied"), [(float("nan"), False), (-float("inf"), True)])
def test_values_that_are_not_finite_stop_an_import(model: Path, value: float, tied: bool) -> None:
    tensors = load_file(model / "model.safetensors")
    tensors[WORDS][3, 5:7] = value
    if tied:
        tensors[DECODER] = tensors[WORDS].clone()
    rewrite(model, tensors)
    with pytest.raises(CheckpointError, match=f"{WORDS}: 2 of 1,246 values"):
        back(model)
    assert sorted(path.name for path in model.parent.iterdir()) == ["model", "ours.safetensors"]


def test_a_number_beyond_fp32_is_not_finite(model: Path) -> None:
    tensors = load_file(model / "model.safetensors")
    pooler = tensors["bert.pooler.dense.bias"].double()
    pooler[1] = 1e300
    rewrite(model, {**tensors, "bert.pooler.dense.bias": pooler})
    with pytest.raises(CheckpointError, match=r"bert\.pooler\.dense\.bias: 1 of 14 values"):
        back(model)


def test_a_configuration_may_begin_with_a_byte_order_mark(model: Path) -> None:
    config = model / "config.json"
    config.write_bytes(codecs.BOM_UTF8 + config.read_bytes())
    for place in (model, config):
        assert open_hugging_face(place).shape.vocab_size == 89


def test_a_tensor_with_two_names_is_refused(model: Path) -> None:
    tensors = load_file(model / "model.safetensors")
    rewrite(model, {**tensors, f"module.{WORDS}": tensors[WORDS] + 1})
    with pytest.raises(CheckpointError, match=WORDS):
        open_hugging_face(model)


def test_another_gelu_is_noted(model: Path) -> None:
    config = json.loads((model / "config.json").read_text())
    assert open_hugging_face(model).notes == ()
    (model / "config.json").write_text(json.dumps({**config, "hidden_act": "gelu"}))
    (note,) = open_hugging_face(model).notes
    assert "gelu_pytorch_tanh" in note


def test_a_model_of_another_kind_is_one_error(model: Path, weights: Path) -> None:
    tensors = load_file(model / "model.safetensors")
    pooler = "bert.pooler.dense.weight"
    for changed, named in (
        ({**tensors, DECODER: tensors[WORDS] + 1}, DECODER),
        ({**tensors, DECODER: tensors[WORDS].to(torch.float8_e4m3fn)}, DECODER),
        ({**tensors, pooler: torch.zeros(14, 13)}, pooler),
        ({**tensors, pooler: torch.zeros(14, 14, dtype=torch.int64)}, pooler),
        ({name: tensor for name, tensor in tensors.items() if name != pooler}, pooler),
    ):
        rewrite(model, changed)
        with pytest.raises(CheckpointError, match=re.escape(named)):
            back(model)
    (model / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"model\.safetensors"):
        open_hugging_face(model)
    with pytest.raises(CheckpointError, match=r"config\.json"):
        open_hugging_face(model.parent)
    with pytest.raises(CheckpointError, match=str(model)):
        export(Weights.open(weights), model)
    with pytest.raises(CheckpointError, match=str(weights / "model")):
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
        scores = ours(batch_of(columns_of(samples)).inputs)
        for place, (ids, kinds) in enumerate(zip(tokens, segments, strict=True)):
            expected = theirs(
                input_ids=ids[None], token_type_ids=kinds[None], attention_mask=torch.ones_like(ids)[None]
            )
            start = sum(lengths[:place])
            found = scores.masked_lm_MV[start : start + len(ids), :89]
            torch.testing.assert_close(found, expected.prediction_logits[0], atol=1e-5, rtol=0)
            sentence = scores.next_sentence_S2[place]
            torch.testing.assert_close(sentence, expected.seq_relationship_logits[0], atol=1e-5, rtol=0)


def test_span_logits_equal_those_of_transformers(model: Path, weights: Path) -> None:
    transformers = pytest.importorskip("transformers")
    theirs = transformers.BertForQuestionAnswering.from_pretrained(model).eval()
    ours = SpanBert(PADDED).eval()
    ours.load_state_dict(load_file(weights), strict=False)  # all but the head, whose weights are theirs
    ours.span.load_state_dict(theirs.qa_outputs.state_dict())
    lengths = [29, 17, 17, 5]
    nowhere = np.zeros((0, 2), np.int64)
    features = []
    for length in lengths:
        tokens = torch.randint(TINY.vocab_size, (length,), generator=torch.Generator().manual_seed(length))
        features.append(Feature(0, tokens.int().numpy(), length // 2, nowhere, np.zeros(0, bool), 0, 0))
    with torch.no_grad():
        found = ours(span_batch(features).inputs)
        for feature, logits in zip(features, found.split(lengths), strict=True):
            expected = theirs(
                input_ids=torch.from_numpy(feature.tokens_N).long()[None],
                token_type_ids=(torch.arange(feature.length) >= feature.first).long()[None],
            )
            torch.testing.assert_close(logits[:, 0], expected.start_logits[0], atol=1e-5, rtol=0)
            torch.testing.assert_close(logits[:, 1], expected.end_logits[0], atol=1e-5, rtol=0)


def test_a_clone_without_its_large_files_is_an_error_that_says_to_pull_them(model: Path) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 440449768\n"
    (model / "model.safetensors").write_text(pointer)
    with pytest.raises(CheckpointError, match="git lfs pull"):
        open_hugging_face(model)
