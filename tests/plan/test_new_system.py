"""`bertbench config init`: the file that it writes, and where its hyper-parameters and its division come from."""

import json
from pathlib import Path

import pytest

from bertbench.cli.main import main
from bertbench.config import load_system
from bertbench.plan import new_system
from bertbench.plan.estimate import reference_points
from bertbench.plan.known_points import known_points, nearest_point
from bertbench.plan.memory import needed_gb
from tests.conftest import Answer, Captured, Printed

CARDS = ["config", "init", "--nodes", "4", "--gpus", "4", "--gpu-model", "h100-pcie"]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_file_is_closed_at_a_known_batch_and_every_command_takes_it(
    answer: Answer, printed: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONT", "registry.example.org/bertbench:1")
    said = printed(*CARDS, "--out", "mine.json")
    system = load_system("mine.json")
    assert (system.world_size, system.hardware.number_of_nodes, system.launch.device) == (16, 4, "cuda")
    assert system.hardware.accelerator_model_name == "NVIDIA H100-PCIe-80GB"
    assert system.hardware.division == "closed"
    known = known_points()[system.global_batch_size]
    assert system.optimizer.learning_rate == known.settings["optimizer"]["learning_rate"]
    assert known.source in said
    assert "division: closed" in said
    assert needed_gb(system) < 80
    printed("estimate", "mine.json")
    for on in ("local", "slurm", "kubernetes"):
        printed("launch", "mine.json", "--on", on, "--dry-run")
    problems = answer("plan", "mine.json")["problems"]
    assert [problem for problem in problems if "found no" not in problem] == []  # no data here: nothing else


def test_a_batch_that_nobody_published_is_open_and_untested(answer: Answer) -> None:
    made = answer(*CARDS, "--batch", "1024")
    assert made["division"] == "open"
    # 768 is nearer to 1,024 than 1,536 is, by ratio; its 3,680 steps span as many samples in 2,760
    assert made["system"]["source"].startswith("UNTESTED at batch 1,024: dgxh200_n1's")
    assert made["system"]["schedule"]["max_steps"] == 3680 * 768 // 1024
    assert made["system"]["optimizer"]["learning_rate"] == 0.00096


def test_from_takes_a_systems_hyper_parameters(printed: Printed) -> None:
    printed(*CARDS, "--from", "dgxa100_n8", "--out", "lamb.json")
    theirs, ours = load_system("dgxa100_n8"), load_system("lamb.json")
    whole = theirs.optimizer.model_copy(update={"sharded": False})  # a choice for 64 GPUs, not a hyper-parameter
    assert (ours.optimizer, ours.schedule, ours.clip) == (whole, theirs.schedule, theirs.clip)
    assert ours.global_batch_size == theirs.global_batch_size
    printed(*CARDS, "--from", "dgxa100_n8_open", "--batch", 1024, "--out", "adam.json")
    theirs, ours = load_system("dgxa100_n8_open"), load_system("adam.json")
    assert ours.hardware.division == "open"
    # 1,024 is a third of 3,072: the square-root rule
    assert ours.optimizer.learning_rate == pytest.approx(theirs.optimizer.learning_rate / 3**0.5)
    assert ours.schedule.max_steps == 3 * theirs.schedule.max_steps


def test_accumulation_makes_a_batch_fit(printed: Printed) -> None:
    printed("config", "init", "--gpus", 4, "--gpu-model", "a100-pcie", "--batch", 3072, "--out", "large.json")
    made = load_system("large.json")
    fewer = max(part for part in range(1, made.parts) if made.local_batch % part == 0)
    less = load_system("large.json", [f"data.gradient_accumulation_steps={fewer}"])
    assert needed_gb(less) > 80 >= needed_gb(made)


def test_a_node_of_the_cluster_describes_itself(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    # this machine has no GPU: this is what a node would report
    described = {**new_system.describe(), "accelerators_per_node": "4", "accelerator_model_name": "NVIDIA H100 PCIe",
            "accelerator_memory_capacity": "80 GiB", "host_processor_model_name": "A processor"}  # fmt: skip
    monkeypatch.setattr(new_system, "describe", lambda: described)
    assert main(["config", "init", "--nodes", "2", "--out", "here.json"]) == 0
    hardware = load_system("here.json").hardware
    assert (hardware.accelerators_per_node, hardware.accelerator_model_name) == (4, "NVIDIA H100 PCIe")
    assert hardware.host_processor_model_name == "A processor"
    assert main(["config", "init", "--nodes", "2", "--gpus", "8", "--gpu-model", "h100-sxm", "--json"]) == 0
    printed = capsys.readouterr()
    assert "host_processor_model_name" not in json.loads(printed.out)["system"]["hardware"]
    assert "this machine has 4 GPUs, not 8" in printed.err


REFUSED = {
    "--gpus 4": "and --gpu-model: a100-pcie, a100-sxm, h100-pcie, h100-sxm, h200-sxm",
    "--gpu-model h100-pcie": "give --gpus",
    "--gpus 5 --gpu-model h100-pcie": "choose another with --batch",
    "--gpus 4 --gpu-model h100-pcie --batch 1001": "choose 1000 or 1004",
    "--gpus 4 --gpu-model h100-pcie --from cpu_demo": "give --from one of the dgx systems",
    "--gpus 4 --gpu-model h100-pcie --out there.json": "there.json exists already; remove it, or name",
    "--gpus 4 --gpu-model h100-pcie --out there": "--out there: expected a name that ends in .json",
}


@pytest.mark.parametrize(("words", "expected"), REFUSED.items())
def test_an_impossible_system_is_refused(words: str, expected: str, tmp_path: Path, printed: Printed) -> None:
    (tmp_path / "there.json").write_text("{}")
    assert expected in printed("config", "init", *words.split(), code=2)


def test_every_known_point_is_a_valid_system_and_reference_points_are_complete() -> None:
    points = known_points()
    assert set(reference_points()) <= set(points)
    assert points[256].settings["schedule"]["max_steps"] == 13700
    assert nearest_point(256, points) is points[256]
    assert nearest_point(300, points).settings["schedule"]["max_steps"] == round(13700 * 256 / 300)
