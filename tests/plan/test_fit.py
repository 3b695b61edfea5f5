"""`bertbench config scale`: the same training on other devices, its memory, and its refusals."""

import json
from pathlib import Path

import pytest

from bertbench.config import load_system
from bertbench.plan.memory import needed_gb
from tests.conftest import Answer, Printed, write_json
from tests.ranks import run_ranks
from tests.training.test_trainer import LOSS_TOLERANCE, losses


@pytest.mark.slow
def test_losses_are_equal_on_one_two_and_four_ranks(tiny_file: str, tmp_path: Path, answer: Answer) -> None:
    """12 samples: 4 ranks take 3 each at once; with memory for 3, 2 ranks take 2 parts and one rank 4."""
    (tmp_path / "below").mkdir()
    enough = answer("config", "scale", tiny_file, "--gpus", 4)["memory_gb"]
    answers, measured = {}, {}
    for ranks in (1, 2, 4):
        file = str(tmp_path / "below" / f"on{ranks}.json")
        answers[ranks] = answer("config", "scale", tiny_file, "--gpus", ranks, "--memory", enough + 1e-6, "--out", file)
        (measured[ranks], *_) = run_ranks(ranks, losses, load_system(file))
    assert {ranks: (one["local_batch"], one["gradient_accumulation_steps"]) for ranks, one in answers.items()} == {
        1: (12, 4), 2: (6, 2), 4: (3, 1),
    }  # fmt: skip
    keys = {
        "command", "gpus", "local_batch", "gradient_accumulation_steps", "global_batch_size",
        "memory_gb",
    }  # fmt: skip
    assert all(set(one) == keys and one["global_batch_size"] == 12 for one in answers.values())
    assert measured[2][0] == pytest.approx(measured[1][0], abs=LOSS_TOLERANCE)
    assert measured[4][0] == pytest.approx(measured[1][0], abs=LOSS_TOLERANCE)


def test_a_closed_system_stays_closed_and_fits_by_plans_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: Printed
) -> None:
    monkeypatch.chdir(tmp_path)
    notes = printed("config", "scale", "dgxa100_n1", "--gpus", 2, "--memory", 40, "--out", "two.json")
    assert "division: closed, legal" in notes
    assert "losses: equal up to rounding, unless they depend on ranks or parts" in notes
    one, other = load_system("dgxa100_n1"), load_system("two.json")
    assert json.loads(Path("two.json").read_text())["extends"] == "dgxa100_n1"
    same = ("model", "optimizer", "schedule", "clip", "evaluation", "loss", "precision")
    assert all(getattr(one, section) == getattr(other, section) for section in same)
    assert (other.global_batch_size, other.world_size, other.hardware.division) == (448, 2, "closed")

    parts = other.data.gradient_accumulation_steps
    fewer = max(part for part in range(1, parts) if 224 % part == 0)
    assert needed_gb(load_system("two.json", [f"data.gradient_accumulation_steps={fewer}"])) > 40 >= needed_gb(other)


def test_quotas_of_strata_keep_the_global_batch_on_other_devices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Answer, printed: Printed
) -> None:
    monkeypatch.chdir(tmp_path)
    answer("config", "scale", "dgxa100_n1_open", "--gpus", 2, "--out", "two.json")
    assert load_system("two.json").data.strata_quotas == (84, 44, 28, 68)  # four times 21, 11, 7, 17
    refused = printed("config", "scale", "dgxa100_n1_open", "--gpus", 7, "--out", "seven.json", code=2)
    assert "draws 168, 88, 56, 136 samples from its strata in a step (data.strata_quotas), which" in refused


def test_without_a_known_memory_a_part_keeps_its_samples(tiny_file: str, tmp_path: Path, answer: Answer) -> None:
    in_parts = {"extends": Path(tiny_file).stem, "data": {"gradient_accumulation_steps": 2}}
    system = write_json(tmp_path / "in_parts.json", in_parts)
    assert load_system(system).local_batch == 6  # 3 in a part
    made = answer("config", "scale", system, "--gpus", 1, "--out", tmp_path / "one.json")
    assert made["gradient_accumulation_steps"] == 4
    assert answer("plan", tmp_path / "one.json")["memory_gb_per_gpu"] == round(made["memory_gb"], 3)


REFUSED = {
    "dgxa100_n1 --gpus 3": "dgxa100_n1, 448, isn't a multiple of 3 data-parallel ranks; choose",
    "dgxa100_n16 --gpus 12": "the nodes of dgxa100_n16 have 8 each; choose at most 8, or a multiple: 8 or 16",
    "dgxa100_n1 --gpus 2 --memory nan": "--memory nan: expected the memory of a device in GB, above 0",
    "dgxa100_n1 --gpus 8 --memory 4": "on each device even with one sample at a time, but a device has 4 GB",
    "bert10b_n128 --gpus 64": "a pipeline accumulates over its microbatches",
    "dgxa100_n1 --gpus 1 --out there.json": "there.json exists already; remove it, or name another file with --out",
    "dgxa100_n1 --gpus 2 --gpu-model a100-pcie --memory 4": "but a device has 4 GB; use larger devices",
}


@pytest.mark.parametrize(("words", "expected"), REFUSED.items())
def test_a_system_that_cannot_fit_is_refused_in_one_line(
    words: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: Printed
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("there.json").write_text("{}")
    doing, refusal = printed(
        "config", "scale", *words.split(), code=2
    ).splitlines()  # on standard error, if on nothing else
    assert doing == "bertbench config scale: counting memory ..."
    assert expected in refusal
    assert [path.name for path in tmp_path.iterdir()] == ["there.json"]
