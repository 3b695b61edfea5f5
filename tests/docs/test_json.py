"""A command's help names the fields that it prints with --json, and no other field."""

import contextlib
import io
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from bertbench.cli.commands import COMMANDS
from bertbench.cli.json_fields import ANSWERS, json_help
from bertbench.cli.main import main
from bertbench.runs.files import ResultFiles
from bertbench.training.rank_run import outcome
from compliance.__main__ import argument_parser
from compliance.__main__ import main as judge
from tests.checkpoint.bundles import tensorflow_1, write_bundle
from tests.checkpoint.tiny_weights import CONFIG, write_tiny
from tests.compliance.packages import write_package
from tests.conftest import Captured, write_json
from tests.data import published
from tests.docs.listing import REPOSITORY
from tests.tiny import TINY_SYSTEM

RESULT = "results/cpu_demo/bert/result_0.txt"
CALLS = {
    ("config list", ""): "config list",
    ("config init", ""): "config init --nodes 1 --gpus 8 --gpu-model a100-sxm",
    ("estimate", ""): "estimate dgxa100_n1",
    ("estimate", "--layouts"): "estimate bert10b_n128 --layouts",
    ("plan", ""): "plan tiny.json",
    ("launch", "--dry-run"): "launch tiny.json --dry-run",
    ("balance", ""): "balance --lengths data --gpus 2 --batch 2 --steps 2 --methods none,planned",
    ("data prepare", ""): "data prepare --system tiny.json --text articles.txt --out data",
    ("data verify", ""): "data verify data",
    ("data verify", "of a download"): "data verify results",
    ("data show", ""): "data show data",
    ("data convert-hdf5", ""): "data convert-hdf5 samples.hdf5 --vocab-size 53 --out from_hdf5",
    ("data convert-tfrecord", ""): "data convert-tfrecord samples.tfrecord --vocab-size 53 --out from_tfrecord",
    ("data shuffle", ""): "data shuffle data --seed 3 --shards 2 --out shuffled",
    ("checkpoint import", ""): "checkpoint import --from-tf model.ckpt --config bert_config.json --out imported",
    ("checkpoint show", ""): "checkpoint show weights.safetensors",
    ("checkpoint export", ""): "checkpoint export weights.safetensors --to-hf exported",
    ("evaluate", ""): "evaluate tiny.json --weights weights.safetensors",
    ("fill-mask", ""): "fill-mask [MASK] --weights weights.safetensors --vocab data/vocab.txt",
    ("finetune squad", "--score"): "finetune squad --dev tests/finetune/questions.json --score predictions.json",
    ("report", ""): f"report {RESULT}",
    ("report", "--list"): f"report --list {RESULT}",
    ("compare", ""): f"compare {RESULT} results/cpu_demo/bert/result_1.txt",
    ("package", ""): "package --results tests/recorded/results --submitter bertbench --allow-dirty --out org cpu_demo",
}
"""By command and mode: a call that prints its answer in at most a few seconds."""
NOT_CALLED = {
    ("train", ""),  # compared below
    ("launch", "a list, with an object for each run"),  # the objects of `train`
    ("finetune squad", ""),  # trains
    ("preflight", ""),  # starts ranks: compared in tests/launch/test_preflight.py
    ("track", ""),  # needs a tracker, which the tests' environment may lack
}


def fields_of(answer: Any) -> set[str]:
    """Return the fields of an answer, or of all objects of a list."""
    rows = answer if isinstance(answer, list) else [answer]
    return {name for row in rows for name in row if name != "command"}


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory, tiny_folder: Path, text: Path) -> Path:
    """A folder with a tiny system, its data and weights, others' samples and checkpoints, and recorded results."""
    place = tmp_path_factory.mktemp("json")
    for name in ("results", "tests"):
        (place / name).symlink_to(REPOSITORY / name)
    shutil.copytree(tiny_folder, place / "data")
    shutil.copy(text, place)
    settings = {**TINY_SYSTEM, "data": {**TINY_SYSTEM["data"], "path": str(place / "data")}}
    write_json(place / "tiny.json", settings)
    write_json(place / "predictions.json", {})
    published.write_hdf5(place / "samples.hdf5", published.fixed_fields())
    published.write_tfrecord(
        place / "samples.tfrecord", [published.example(published.features(sample)) for sample in published.SAMPLES]
    )
    write_bundle(place / "model.ckpt", tensorflow_1())
    write_json(place / "bert_config.json", CONFIG)
    write_tiny(place / "weights.safetensors")
    return place


def answered(command: str, folder: Path) -> Any:
    with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()) as output:
        assert main([*command.split(), "--json"]) in (0, 1)
    return json.loads(output.getvalue())


SLOW = {("config init", ""), ("estimate", "--layouts")}


@pytest.mark.parametrize(
    ("command", "mode"),
    [pytest.param(*call, marks=pytest.mark.slow) if call in SLOW else call for call in CALLS],
)
def test_an_answer_has_the_fields_of_the_help_and_no_others(command: str, mode: str, folder: Path) -> None:
    (documented,) = [set(answer.fields) for answer in ANSWERS[command] if answer.mode == mode]
    assert fields_of(answered(CALLS[command, mode], folder)) == documented


def test_no_answer_is_forgotten() -> None:
    documented = {(command, answer.mode) for command, answers in ANSWERS.items() for answer in answers}
    assert documented == CALLS.keys() | NOT_CALLED


def test_a_run_s_answer_has_the_fields_of_the_help() -> None:
    (train,) = ANSWERS["train"]
    assert fields_of(outcome(ResultFiles(REPOSITORY / RESULT))) | {"not_a_result"} == set(train.fields)


def test_the_judge_s_answer_has_the_fields_of_its_help(folder: Path) -> None:
    documented = re.findall(r"^  (\w+) ", argument_parser("judge").epilog or "", re.MULTILINE)
    assert {"command", *fields_of(answered(f"judge {RESULT}", folder))} == set(documented)


def test_the_judge_s_help_names_the_fields_of_findings_and_of_a_package(tmp_path: Path, capsys: Captured) -> None:
    write_package(tmp_path)
    assert judge(["--json", str(tmp_path)]) == 0
    package = json.loads(capsys.readouterr().out)
    (result,) = package["results"]
    judge(["--json", "docs/examples/review/result_1.txt"])
    (log,) = json.loads(capsys.readouterr().out)
    documented = set(re.findall(r"\w+", argument_parser("judge").epilog or ""))
    assert documented >= {*package, *result, *log["findings"][0], *log["not_applied"][0], *log["official"]}


def test_every_command_but_the_judge_says_what_its_json_is() -> None:
    assert [command.name for command in COMMANDS if not json_help(command.name)] == ["judge"]


MISTAKES = ["plan nosuch", "plan", "trian", "balance --gpus 0", "judge --ruleset 5.1.0 x", "finetune squad --dev x"]


@pytest.mark.parametrize("command", MISTAKES)
def test_a_mistake_is_an_object_with_the_message_of_standard_error(command: str, capsys: Captured) -> None:
    try:
        code = main([*command.split(), "--json"])
    except SystemExit as ended:
        code = int(ended.code or 0)
    out, err = capsys.readouterr()
    answer = json.loads(out)
    assert answer.keys() == {"command", "error"}
    assert (code, answer["error"]["exit_code"]) == (2, 2)
    assert answer["error"]["message"] in err.replace("bertbench: ", "", 1) or answer["error"]["message"] in err
