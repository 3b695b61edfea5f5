"""The model that a run writes, and the commands that read it from a file, a run, a log or a snapshot."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bertbench.checkpoint.resumption import restore_files
from bertbench.checkpoint.run_weights import newest_run, open_weights
from bertbench.checkpoint.snapshot_folder import verified
from bertbench.checkpoint.tensor_names import VOCABULARY_ROWS
from bertbench.checkpoint.weights_file import Weights, write_weights
from bertbench.cli.main import main
from bertbench.common.errors import CheckpointError
from bertbench.config import System, load_system
from bertbench.distributed.world import World
from bertbench.loading.inputs import open_data
from bertbench.runs.files import ResultFiles
from bertbench.runs.run_progress import RunProgress
from bertbench.training.build import make_sampler, make_trainer
from bertbench.training.short_run import shortened
from bertbench.training.task import initial_model
from bertbench.training.train import train
from compliance.read.log import read_events
from tests.conftest import Answer, Captured, Printed, Tiny
from tests.parallel.test_equality import LAYOUTS, SHAPE
from tests.ranks import run_ranks
from tests.tiny import TINY_SYSTEM

SEED = 5
# two evaluations, the last after the last step; a snapshot there too
OVERRIDES = ("schedule.max_steps=20", "evaluation.interval_samples=120", "checkpoint.every_steps=10")


def run_of(world: World, system: System, log: Path) -> str:
    """Train on this rank; return how the run ended."""
    files = ResultFiles(log)
    if world.leads:
        files.describe(system, SEED)
    world.barrier()
    own = files if world.leads else None
    return train(system, world, SEED, own, RunProgress(system, enabled=False)).reason or "success"


@pytest.fixture(scope="module")
def system_file(tmp_path_factory: pytest.TempPathFactory, tiny_folder: Path) -> str:
    path = tmp_path_factory.mktemp("system") / "tiny.json"
    path.write_text(json.dumps({**TINY_SYSTEM, "data": {**TINY_SYSTEM["data"], "path": str(tiny_folder)}}))
    return str(path)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, system_file: str) -> ResultFiles:
    """A run that missed its target."""
    folder = tmp_path_factory.mktemp("runs") / "tiny" / "bert"
    folder.mkdir(parents=True)
    files = ResultFiles(folder / "result_0.txt")
    ended = run_ranks(2, run_of, load_system(system_file, OVERRIDES), files.log)
    assert ended == ["target 0.9 not reached in 20 steps"] * 2
    return files


@pytest.fixture
def copy(trained: ResultFiles, tmp_path: Path) -> ResultFiles:
    """The same run, for a test that changes it."""
    shutil.copytree(trained.folder, tmp_path / "result_0")
    shutil.copy(trained.log, tmp_path / "result_0.txt")
    return ResultFiles(tmp_path / "result_0.txt")


def same(one: Weights, other: Weights) -> bool:
    tensors, others = one.read(), other.read()
    return tensors.keys() == others.keys() and all(
        torch.equal(tensor, others[name]) for name, tensor in tensors.items()
    )


def test_evaluate_finds_the_accuracy_that_the_run_ended_with(
    trained: ResultFiles, system_file: str, answer: Answer
) -> None:
    logged = [event.value for event in read_events(trained.log) if event.key == "eval_accuracy"]
    evaluated = answer("evaluate", system_file, "--weights", trained.folder)
    assert evaluated["precision"] == "fp32"
    assert evaluated["accuracy"] == logged[-1] > 0
    assert evaluated["source"] == "tiny, seed 5, after 240 samples"
    assert answer("evaluate", trained.folder) == answer("evaluate", trained.log) == evaluated, "a run names its system"
    assert trained.weights.stat().st_mtime >= trained.log.stat().st_mtime, "written when the clock has stopped"


def test_a_run_its_log_its_file_and_its_last_snapshot_hold_the_same_model(trained: ResultFiles) -> None:
    final = Weights.open(trained.weights)
    last, before = (trained.snapshots / f"step_{step}" for step in (20, 10))
    assert all(same(final, open_weights(path)) for path in (trained.weights, trained.folder, trained.log, last))
    assert not same(final, open_weights(before))
    assert final.real_vocab_size == open_weights(last).real_vocab_size == 89
    assert open_weights(last).source == "a snapshot of tiny, seed 5, after 240 samples"
    assert open_weights(last).sha256() != open_weights(before).sha256()


def test_final_weights_and_the_last_snapshot_are_the_weights_that_evaluations_read(
    tmp_path: Path, system_file: str, trained: ResultFiles
) -> None:
    averaged = load_system(system_file, [*OVERRIDES, "optimizer.ema_decay=0.5", "optimizer.sharded=true"])
    files = ResultFiles(tmp_path / "result_0.txt")
    run_ranks(2, run_of, averaged, files.log)
    final = Weights.open(files.weights)
    assert same(final, open_weights(files.snapshots / "step_20"))
    assert not same(final, Weights.open(trained.weights))


def test_without_final_weights_a_run_uses_its_newest_complete_snapshot_and_says_so(copy: ResultFiles) -> None:
    final = Weights.open(copy.weights)
    restore_files(copy, verified(copy.snapshots / "step_20"))
    assert not copy.weights.exists(), "weights of an end that the run has no more"
    weights = open_weights(copy.folder)
    assert weights.path == copy.snapshots / "step_20"
    assert weights.tensors == final.tensors
    next(weights.path.glob("*.distcp")).write_bytes(b"damage")
    with pytest.raises(CheckpointError, match="step_20"):
        open_weights(weights.path)
    assert open_weights(copy.folder).path.name == "step_10"
    shutil.rmtree(copy.snapshots)
    with pytest.raises(CheckpointError, match="result_0: "):
        open_weights(copy.folder)


def several_runs(world: World, system: System, folder: Path) -> None:
    """Runs that write no weights: on request, because they are short, and because the file exists."""
    without = system.model_copy(update={"checkpoint": system.checkpoint.model_copy(update={"final_weights": False})})
    run_of(world, without, folder / "result_0.txt")
    run_of(world, shortened(system, "smoke"), folder / "smoke_0.txt")
    taken = ResultFiles(folder / "result_1.txt")
    taken.folder.mkdir(exist_ok=True)
    taken.weights.write_text("taken")
    assert run_of(world, system, taken.log).startswith("target 0.9 not reached")


def test_weights_are_not_written_on_request_for_short_runs_and_if_writing_fails(
    system_file: str, tmp_path: Path
) -> None:
    run_ranks(1, several_runs, load_system(system_file, ["launch.ranks_per_node=1", "schedule.max_steps=2"]), tmp_path)
    assert [path.parent.name for path in tmp_path.rglob("weights.safetensors")] == ["result_1"]
    assert (tmp_path / "result_1" / "weights.safetensors").read_text() == "taken"


def wholes(world: World, *systems: System) -> list[bool]:
    """Return whether each layout's gathered model is the one that the seed gives, as rank 0 finds."""
    answers = []
    for system in systems:
        training, _ = open_data(system)
        trainer = make_trainer(system, world, SEED, make_sampler(system, training, SEED))
        whole, expected = trainer.gather_model(), initial_model(system, SEED).state_dict()
        answers.append(
            whole is not None
            and all(torch.equal(tensor, expected[name]) for name, tensor in whole.state_dict().items())
        )
        trainer.close()
    return answers


@pytest.mark.slow
def test_a_model_that_is_split_over_ranks_is_gathered(tiny: Tiny) -> None:
    names = ("1x2x2", "2x1x2 interleaved", "4 sharded")
    systems = [tiny("launch.ranks_per_node=4", *SHAPE, *LAYOUTS[name]) for name in names]
    first, *others = run_ranks(4, wholes, *systems)
    assert first == [True] * len(names)
    assert others == [[False] * len(names)] * 3


def fill_mask(answer: Answer, *words: object) -> list[dict[str, float]]:
    """The probabilities by token, for each mask."""
    masks = answer("fill-mask", *words)["masks"]
    return [{one["token"]: one["probability"] for one in predictions} for predictions in masks]


def test_fill_mask_predicts_what_transformers_predicts_with_the_exported_model(
    trained: ResultFiles, tmp_path: Path, answer: Answer
) -> None:
    transformers = pytest.importorskip("transformers")
    text = "The [MASK] learns words from [MASK] text."
    found = fill_mask(answer, text, "--weights", trained.folder, "--top", "1000")
    assert [len(predictions) for predictions in found] == [89, 89]  # entries, not the 97 rows
    answer("checkpoint", "export", trained.folder, "--to-hf", tmp_path / "hf")
    model = transformers.BertForPreTraining.from_pretrained(tmp_path / "hf").eval()
    tokens = trained.vocabulary.read_text().splitlines()
    tokenizer = transformers.BertTokenizer(str(trained.vocabulary))
    encoded = tokenizer(text, return_tensors="pt")
    with torch.no_grad():
        probabilities = model(**encoded).prediction_logits[0].softmax(dim=-1)
    for predictions, place in zip(found, (encoded.input_ids[0] == tokenizer.mask_token_id).nonzero(), strict=True):
        expected = dict(zip(tokens, probabilities[place.item()].tolist(), strict=True))
        assert predictions == pytest.approx(expected, abs=1e-6)
        assert list(predictions.values()) == sorted(predictions.values(), reverse=True)


def test_fill_mask_takes_the_newest_run_with_weights(
    trained: ResultFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: Printed
) -> None:
    monkeypatch.setenv("LOGDIR", str(tmp_path))
    assert "no run with weights" in printed("fill-mask", "a [MASK]", code=2)
    runs = [
        tmp_path / system / "bert" / run for system, run in (("a", "result_9"), ("b", "result_3"), ("a", "result_10"))
    ]
    for time, run in enumerate(runs):
        shutil.copytree(trained.folder, run)
        run.with_suffix(".txt").touch()
        os.utime(run.with_suffix(".txt"), (time, time))
    shutil.rmtree(runs[2] / "snapshots")
    (runs[2] / "weights.safetensors").unlink()  # one that goes on
    assert newest_run(tmp_path) == runs[1]
    assert "result_3/weights.safetensors, from tiny, seed 5" in printed("fill-mask", "a [MASK]", "--top", "1")


def test_fill_mask_takes_a_vocabulary_with_fewer_entries_than_padded_rows(
    copy: ResultFiles, tmp_path: Path, answer: Answer, printed: Printed
) -> None:
    tensors = {name: tensor.clone() for name, tensor in Weights.open(copy.weights).read().items()}
    for name in VOCABULARY_ROWS:
        tensors[name] = tensors[name][:96]
    shape = replace(Weights.open(copy.weights).shape, vocab_size=96)
    write_weights(tmp_path / "padded.safetensors", tensors, shape, 96, "a file whose vocab_size counts padding")
    words = ["a [MASK]", "--vocab", copy.vocabulary, "--top", "1000", "--weights"]
    assert fill_mask(answer, *words, tmp_path / "padded.safetensors") == fill_mask(answer, *words, copy.folder)
    more = tmp_path / "more.txt"
    more.write_text(copy.vocabulary.read_text() + "".join(f"word{number}\n" for number in range(8)))
    assert "97 entries" in printed(
        "fill-mask", "a [MASK]", "--vocab", more, "--weights", tmp_path / "padded.safetensors", code=2
    )


def test_fill_mask_warns_of_a_vocabulary_with_capitals(copy: ResultFiles, tmp_path: Path, capsys: Captured) -> None:
    cased = tmp_path / "cased.txt"
    *entries, _ = copy.vocabulary.read_text().splitlines()
    cased.write_text("\n".join([*entries, "Berlin"]) + "\n")
    assert main(["fill-mask", "a [MASK]", "--vocab", str(cased), "--weights", str(copy.folder)]) == 0
    assert f"{cased}: 1 of 84 entries" in capsys.readouterr().err


def test_fill_mask_refuses_text_that_it_cannot_predict(copy: ResultFiles, tmp_path: Path, printed: Printed) -> None:
    few = tmp_path / "few.txt"
    few.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n")
    for words, expected in (
        (["no mask"], "[MASK]"),
        ([" ".join(["[MASK]"] * 28)], "29 positions"),
        (["a [MASK]", "--top", "0"], "--top 0"),
        (["a [MASK]", "--vocab", str(few)], "5 entries"),
    ):
        assert expected in printed("fill-mask", *words, "--weights", copy.folder, code=2)
    copy.vocabulary.unlink()
    assert "vocab.txt" in printed("fill-mask", "a [MASK]", "--weights", copy.folder, code=2)
