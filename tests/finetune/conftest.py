"""Made-up questions in tests/finetune/questions.json, a vocabulary of their words, and a system small enough."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bertbench.config import System
from bertbench.data.text.vocabulary import Vocabulary
from bertbench.finetune.squad import read_squad
from bertbench.finetune.squad_inputs import Inputs
from bertbench.finetune.squad_system import load_finetuning
from tests.tiny import TINY_SYSTEM

QUESTIONS = Path(__file__).with_name("questions.json")


@pytest.fixture
def vocab(tmp_path: Path) -> Path:
    path = tmp_path / "vocab.txt"
    questions = read_squad(QUESTIONS)
    texts = [text for question in questions for text in (question.context, question.text)]
    path.write_text(Vocabulary.train(texts, 199).text, encoding="utf-8")
    return path


@pytest.fixture
def system_file(tmp_path: Path) -> str:
    sizes = {"vocab_size": 211, "hidden_size": 38, "max_positions": 101, "initializer_range": 0.1}
    path = tmp_path / "tiny.json"
    recipe = {
        "task": "squad",
        "data": {"global_batch_size": 5},
        "optimizer": {"name": "adam", "learning_rate": 0.02},
        "schedule": {},
        "squad": {"epochs": 1, "warmup_fraction": 0.1},
    }
    content = {**TINY_SYSTEM, "model": {**TINY_SYSTEM["model"], **sizes}, **recipe}
    path.write_text(json.dumps(content))
    return str(path)


@pytest.fixture
def system(system_file: str) -> Callable[..., System]:
    return lambda *overrides: load_finetuning(system_file, overrides)


@pytest.fixture
def squad(system_file: str, vocab: Path, tmp_path: Path) -> list[str]:
    """Return the arguments of a fine-tuning that writes to tmp_path/out; later arguments may replace these."""
    files = {"train": QUESTIONS, "dev": QUESTIONS, "vocab": vocab, "out": tmp_path / "out"}
    options = [word for name, path in files.items() for word in (f"--{name}", str(path))]
    return ["finetune", "squad", "--system", system_file, *options]


@pytest.fixture
def inputs(vocab: Path) -> Callable[..., Inputs]:
    return lambda system, init=None: Inputs.open(system, QUESTIONS, QUESTIONS, vocab, init)


def content_of_lines(path: Path) -> list[dict[str, Any]]:
    """Return the JSON objects of a file with one per line."""
    return [json.loads(line) for line in path.read_text().splitlines()]
