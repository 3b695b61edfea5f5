"""Checkpoints through the command line: import, show, export, evaluate, train."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from bertbench.checkpoint.weights_file import Weights, write_weights
from bertbench.cli.main import main
from bertbench.config import System
from bertbench.distributed.world import World
from bertbench.loading.inputs import open_split
from bertbench.model.bert import Bert
from bertbench.training.evaluator import Evaluator
from bertbench.training.whole_trainer import WholeTrainer
from compliance import judge_log
from tests.checkpoint.bundles import tensorflow_1, with_optimizer, write_bundle
from tests.checkpoint.tiny_weights import CONFIG, PADDED, tiny_weights, write_tiny
from tests.conftest import Answer, Captured, Printed, Tiny
from tests.ranks import run_command, run_ranks


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """A folder with a small TensorFlow checkpoint and its configuration."""
    write_bundle(tmp_path / "model.ckpt-28252", with_optimizer(tensorflow_1()))
    (tmp_path / "bert_config.json").write_text(json.dumps(CONFIG))
    return tmp_path


def import_words(folder: Path, prefix: str = "model.ckpt-28252") -> list[object]:
    return [
        "checkpoint", "import", "--from-tf", folder / prefix, "--config", folder / "bert_config.json",
        "--out", folder / "phase1.safetensors", "--vocab-size", "97",
    ]  # fmt: skip


def test_import_lists_every_tensor_and_show_and_export_take_its_file(
    published: Path, printed: Printed, answer: Answer
) -> None:
    file = published / "phase1.safetensors"
    assert "bert/pooler/dense/kernel/adam_m" in printed(*import_words(published))
    parameters = sum(tensor.numel() for tensor in Bert(PADDED).parameters())
    content = answer("checkpoint", "show", file)
    assert (content["parameters"], content["tensors"]["layers.1.qkv.weight"]) == (parameters, [42, 14])
    folder, again = published / "hf", published / "again.safetensors"
    answer("checkpoint", "export", file, "--to-hf", folder)
    answer("checkpoint", "import", "--from-hf", folder, "--out", again, "--vocab-size", "97")
    first, second = Weights.open(file).read(), Weights.open(again).read()
    assert all(torch.equal(tensor, second[name]) for name, tensor in first.items())


def test_a_refused_import_is_one_line_without_a_summary(published: Path, capsys: Captured) -> None:
    variables = tensorflow_1()
    variables["bert/pooler/dense/kernel"][2, 3:] = np.nan
    write_bundle(published / "diverged", variables)
    del variables["bert/pooler/dense/kernel"]
    write_bundle(published / "incomplete", variables)
    for prefix, expected in (("diverged", "11 of 196 values are NaN"), ("incomplete", "lacks 1 of 46 tensors: bert/p")):
        assert main([*map(str, import_words(published, prefix))]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert expected in err
        assert err.count("\n") == 1


def test_the_report_as_json_counts_as_the_lines_do(published: Path, answer: Answer) -> None:
    report = answer(*import_words(published, "model.ckpt-28252.index"))
    assert (len(report["used"]), len(report["skipped"])) == (46, 95)
    assert (report["real_vocab_size"], report["vocab_size"]) == (89, 97)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["checkpoint", "import", "--from-tf", "DIR/x", "--out", "F"], "--config"),
        (["checkpoint", "import", "--from-hf", "DIR/none", "--out", "F"], "none/config.json"),
        (["checkpoint", "import", "--from-hf", "DIR/none", "--out", "TINY"], "tiny.json"),
        (["checkpoint", "show", "DIR/none"], "none"),
        (["evaluate", "TINY"], "model.checkpoint"),
        (["train", "TINY", "--set", "model.checkpoint=/none"], "/none"),
        (["train", "TINY", "--set", "model.checkpoint=OF_3_LAYERS"], "layers 3"),
        (["train", "TINY", "--set", "model.checkpoint=OF_13_WORDS"], "13 entries"),
    ],
)
def test_a_mistake_is_one_error_before_any_rank_starts(
    tmp_path: Path, tiny_file: str, printed: Printed, words: list[str], expected: str
) -> None:
    deeper = replace(PADDED, layers=3)
    write_weights(tmp_path / "deeper", Bert(deeper).state_dict(), deeper, 89, "a test")
    write_weights(tmp_path / "few", tiny_weights(), PADDED, 13, "a test")
    places = {"TINY": tiny_file, "OF_3_LAYERS": str(tmp_path / "deeper"), "OF_13_WORDS": str(tmp_path / "few")}
    for name, place in {**places, "DIR": str(tmp_path)}.items():
        words = [word.replace(name, place) for word in words]
    assert expected in printed(*words, code=2)


@pytest.mark.parametrize("name", ["7", "data/w.safetensors"])
def test_weights_in_the_data_folder_may_have_any_name(
    tmp_path: Path, tiny_file: str, printed: Printed, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("DATADIR", str(tmp_path))
    path = tmp_path / name
    assert f"{path}: found no weights" in printed("plan", tiny_file, "--weights", path)


SCORING_SEED = 4
"""Untrained weights of this seed guess some words, in the random numbers of torch 2.11 and of later ones."""


def test_evaluate_scores_as_ranks_do_that_start_from_the_same_weights(
    tmp_path: Path, tiny_file: str, tiny: Tiny, answer: Answer
) -> None:
    write_tiny(tmp_path / "start", tiny_weights(SCORING_SEED))
    evaluated = answer("evaluate", tiny_file, "--weights", tmp_path / "start")
    assert evaluated["samples"] == 13
    assert evaluated["accuracy"] > 0
    on_two = run_ranks(2, accuracy_at_the_start, tiny(f"model.checkpoint={tmp_path / 'start'}"))
    assert on_two == [evaluated["accuracy"]] * 2


def accuracy_at_the_start(world: World, system: System) -> float:
    """The loss of a trainer that starts from the file's weights, with or without warm-up."""
    trainer = WholeTrainer(system, world, 11)
    for name, tensor in trainer.model.state_dict().items():
        assert torch.equal(tensor, tiny_weights(SCORING_SEED)[name]), name
    accuracy = Evaluator(open_split(system, "eval"), 5, world).accuracy(trainer.model, "fp32")
    trainer.close()
    return accuracy


def test_a_run_from_a_checkpoint_logs_each_of_its_tensors_once(tmp_path: Path, tiny_file: str) -> None:
    write_tiny(tmp_path / "start")
    settings = ("model.checkpoint=start", "schedule.max_steps=400", "evaluation.target=0.01")
    words = ["train", tiny_file, *(word for setting in settings for word in ("--set", setting))]
    done = run_command(2, words, tmp_path, DATADIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    log = tmp_path / "runs" / "tiny" / "bert" / "result_0.txt"
    events = [json.loads(line.partition(" ")[2]) for line in log.read_text().splitlines()]
    keys = [event["key"] for event in events]
    names = [event["metadata"]["tensor"] for event in events if event["key"] == "weights_initialization"]
    assert sorted(names) == sorted(tensorflow_1())
    assert keys.index("init_start") < keys.index("weights_initialization")
    assert keys.index("init_stop") > len(keys) - 1 - keys[::-1].index("weights_initialization")
    assert judge_log(log, "5.0.0").verdict == "pass"
