"""The techniques that docs/ideas.md shows train as the page says; the code is the page's own."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch.nn.utils import parameters_to_vector

from bertbench.common.errors import ConfigError
from bertbench.config import System
from bertbench.distributed.world import World
from bertbench.loading.inputs import open_data
from bertbench.training.build import make_sampler
from bertbench.training.technique import EVERY_STEP, Technique
from tests.conftest import Tiny
from tests.docs.listing import REPOSITORY
from tests.ranks import run_ranks
from tests.training.steps import losses_of, whole_trainer

PAGE = REPOSITORY / "docs" / "ideas.md"
TECHNIQUES = PAGE.read_text().partition("\n## From Python\n")[0]
_EXAMPLE = re.compile(r"[Ss]ave\s+(?:this|it)\s+as\s+`(\w+\.py)`:\n\n```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^PYTHONPATH=\. bertbench lab train cpu_study --technique (.*)$", re.MULTILINE)


def examples() -> dict[str, str]:
    """Return the page's files: name -> code."""
    found = dict(_EXAMPLE.findall(TECHNIQUES))
    assert len(found) == TECHNIQUES.count("```python")
    return found


def made(file: str, name: str, **options: Any) -> Technique:
    """Return the technique of a class in a file of the page."""
    names: dict[str, Any] = {"__name__": file.removesuffix(".py")}
    exec(compile(examples()[file], f"<{file} of {PAGE.name}>", "exec"), names)
    technique: Technique = names[name](**options)
    return technique


def trained(world: World, system: System) -> list[tuple[list[float], list[float], int]]:
    """Return losses, weights and bytes of each technique: the product's, and the page's."""
    answers = []
    for technique in (EVERY_STEP, made("signs.py", "Signs"), made("sgd.py", "Sgd", momentum=0.0)):
        technique.check(system)
        with whole_trainer(system, world, technique=technique) as trainer:
            losses = losses_of(world, system, trainer, 6)
            weights = parameters_to_vector(trainer.model.parameters()).tolist()
            answers.append((losses, weights, trainer.describe_step().bytes_per_step))
            assert trainer.describe_step().technique == technique.name
    return answers


def test_the_pages_assignment_takes_turns_and_every_rank_trains_its_samples(tiny: Tiny) -> None:
    turns = made("turns.py", "Turns")
    turns.check(tiny())
    with pytest.raises(ConfigError, match=r"data\.balance packed doesn't go with a technique that assigns samples"):
        turns.check(tiny("data.balance=packed"))
    assert turns.assign is not None
    assert turns.assign(np.array([[5, 9, 7, 7, 1]]), 2).tolist() == [[1, 0, 1, 0, 0]]  # 9 7 7 5 1
    system = tiny()
    planner = make_sampler(system, open_data(system)[0], 11, turns).planner
    assigned = planner.plan(0).assigned
    lengths = planner.lengths(assigned).tolist()
    by_length = sorted(lengths, reverse=True)
    assert [lengths[:6], lengths[6:]] != [by_length[:6], by_length[6:]]
    assert sorted(lengths[:6], reverse=True) == by_length[::2]
    assert sorted(lengths[6:], reverse=True) == by_length[1::2]


def test_the_pages_techniques_train_and_all_ranks_agree(tiny: Tiny) -> None:
    first, second = run_ranks(2, trained, tiny())
    assert first == second
    (plain, _, plain_bytes), (signs, _, sign_bytes), (sgd, _, sgd_bytes) = first
    assert plain[0] == signs[0] == sgd[0]
    assert len({plain[-1], signs[-1], sgd[-1]}) == 3
    assert signs[-1] < signs[0]
    assert plain_bytes == sgd_bytes
    assert plain_bytes // 4 < sign_bytes < plain_bytes // 3


def test_the_pages_commands_name_its_classes_and_their_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for file, code in examples().items():
        (tmp_path / file).write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    from lab.techniques.read import read_technique  # noqa: PLC0415 - as in a command, which finds the page's files

    words = [command.partition(" --set ")[0].split() for command in _COMMAND.findall(TECHNIQUES)]
    assert [read_technique(technique).record() for technique in words] == [
        {"name": "signs", "strength": 0.5},
        {"name": "sgd", "momentum": 0.8},
        {"name": "turns"},
    ]


@pytest.mark.slow  # starts two ranks by a command, whose words and technique the tests above train with
def test_a_technique_of_your_own_trains_by_the_command(tiny_file: str, tmp_path: Path) -> None:
    (tmp_path / "signs.py").write_text(examples()["signs.py"])
    log = tmp_path / "result_0.txt"
    words = ["lab", "train", tiny_file, "--technique", "signs:Signs", "strength=0.5", "--result", str(log)]
    command = [sys.executable, "-m", "bertbench", *words]
    environment = {**os.environ, "PYTHONPATH": ".", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 3, done.stderr
    folder = log.with_suffix("")
    assert json.loads((folder / "config.json").read_text())["technique"] == {"name": "signs", "strength": 0.5}
    assert json.loads((folder / "communication.json").read_text())["technique"] == "signs"
    assert '"bertbench_sync_method", "value": "signs"' in log.read_text()
